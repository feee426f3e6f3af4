/* Scalar types of all widths, conversions, division, special functions. */
#define KERNEL __attribute__((amdgpu_kernel)) void
#define GLOBAL __attribute__((address_space(1)))
typedef _Float16 half;
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef short short2 __attribute__((ext_vector_type(2)));
typedef unsigned long ulong;

static unsigned id(void) { return __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x(); }

KERNEL floats(GLOBAL float *a, GLOBAL const float *b, float c) {
    unsigned i = id();
    float x = a[i], y = b[i];
    float r = x * y + c;
    r += __builtin_sqrtf(__builtin_fabsf(x)) / (y + 1.5f);
    r = __builtin_fmaxf(r, -__builtin_fminf(x, y)) + __builtin_floorf(x) * __builtin_ceilf(y) - __builtin_truncf(r);
    r += __builtin_amdgcn_rcpf(x) + __builtin_amdgcn_rsqf(y) + __builtin_amdgcn_sinf(x) + __builtin_amdgcn_exp2f(y);
    r += __builtin_amdgcn_fmed3f(x, y, c) + __builtin_amdgcn_ldexpf(x, (int)y) + (x > y ? 0.5f : -4.0f);
    r += __builtin_amdgcn_frexp_mantf(x) + (float)__builtin_amdgcn_frexp_expf(y) + __builtin_copysignf(x, y);
    a[i] = __builtin_isnan(r) ? 0.15915494f : r * 3.25f;
}

KERNEL doubles(GLOBAL double *a, GLOBAL const double *b, double c, GLOBAL int *k) {
    unsigned i = id();
    double x = a[i], y = b[i];
    double r = __builtin_fma(x, y, c) + x / y - __builtin_sqrt(x) + __builtin_floor(y);
    r = x < y ? r : __builtin_fmax(x, -y) * 1.0e10;
    k[i] = (int)r + (int)(unsigned)y + (int)(long)(x * 1.0e6);
    a[i] = r + (float)x + k[i + 1] + 2.0;
}

KERNEL halves(GLOBAL half *a, GLOBAL const half *b, GLOBAL half2 *p, GLOBAL float2 *f, GLOBAL short2 *s, half c) {
    unsigned i = id();
    half x = a[i], y = b[i];
    half r = x * y + c;
    r = r > (half)1.0f ? r / y : __builtin_fmaf16(x, -y, (half)0.5f);
    half2 v = p[i] * p[i + 1] + (half2){r, x};
    p[i] = __builtin_elementwise_max(v, -p[i + 2]);
    f[i] = f[i] * f[i + 1] + f[i + 2];
    f[i + 3] = f[i + 3] + (float2){(float)v.x, (float)r};
    s[i] = s[i] * s[i + 1] - (short2){3, -5};
    s[i + 1] = (s[i + 2] >> (short2){2, 3}) + __builtin_elementwise_min(s[i + 3], s[i + 4]);
    a[i] = r + (half)(int)y;
}

KERNEL integers(GLOBAL int *a, GLOBAL unsigned *b, GLOBAL long *c, GLOBAL ulong *d, GLOBAL short *s, GLOBAL char *h, int n) {
    unsigned i = id();
    int x = a[i];
    unsigned y = b[i];
    long l = c[i];
    ulong m = d[i];
    int r = x * n + (x >> 3) - (int)(y / 7u) + x % 13 + (x / (n | 1)) + (int)(y % (unsigned)(n | 1));
    r ^= __builtin_popcount(y) + __builtin_clz(x | 1) + __builtin_ctz(y | 1) + (int)__builtin_bitreverse32(y);
    r = (r << (y & 31)) | (int)((y >> 5) & 0x3ff) | (int)__builtin_amdgcn_perm(x, y, 0x03010200u);
    r += __builtin_amdgcn_ubfe(y, 4, 7) + __builtin_amdgcn_sbfe(x, 3, 9) + __builtin_amdgcn_alignbyte(x, y, 3);
    l = l * 1000003 + (l >> 17) - (long)x + l / 10 + (long)((ulong)n * y);
    m = (m << (y & 63)) ^ (m % 97) ^ (ulong)__builtin_popcountl(m) ^ 0x123456789abcdefull;
    s[i] = (short)(s[i] * 3 + (s[i + 1] >> 2) - (unsigned short)y);
    h[i] = (char)(h[i] + (unsigned char)x * 3);
    a[i] = r < n ? r : -17;
    b[i] = y > 100 ? y + 0x12345678u : y;
    c[i] = l;
    d[i] = m < (ulong)l ? m : ~m;
}

KERNEL control(GLOBAL int *a, int n, int mode) {
    unsigned i = id();
    int total = 0;
    for (int k = 0; k < n; k++) {
        if (a[k] & 1)
            continue;
        total += a[k * n + i];
        if (total > 100000)
            break;
    }
    switch (mode) {
    case 0: total += 3; break;
    case 1: total *= a[1]; break;
    case 2: total -= n; break;
    case 7: total = ~total; break;
    case 9: __builtin_amdgcn_s_sleep(2); break;
    default: __builtin_trap();
    }
    a[i] = total;
}
