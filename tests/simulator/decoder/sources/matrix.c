/* Matrix instructions of both chips. */
#define KERNEL __attribute__((amdgpu_kernel)) void
#define GLOBAL __attribute__((address_space(1)))
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef short short4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf8 __attribute__((ext_vector_type(8)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));
typedef float float32 __attribute__((ext_vector_type(32)));
typedef double double4 __attribute__((ext_vector_type(4)));
typedef int int4 __attribute__((ext_vector_type(4)));
typedef int int8 __attribute__((ext_vector_type(8)));
typedef int int16 __attribute__((ext_vector_type(16)));

static unsigned lane(void) { return __builtin_amdgcn_workitem_id_x(); }

KERNEL f16(GLOBAL half4 *a, GLOBAL float4 *c, GLOBAL float16 *d, GLOBAL float32 *e) {
    unsigned i = lane();
    float4 x = c[i];
    float16 y = d[i];
    for (int k = 0; k < 8; k++) {
        x = __builtin_amdgcn_mfma_f32_16x16x16f16(a[i + k], a[i + 64 + k], x, 0, 0, 0);
        y = __builtin_amdgcn_mfma_f32_32x32x8f16(a[i + k], a[i + 64 + k], y, 0, 0, 0);
    }
    e[i] = __builtin_amdgcn_mfma_f32_32x32x4f16(a[i], a[i + 1], e[i], 1, 2, 3);
    c[i] = x;
    d[i] = y;
}

KERNEL others(GLOBAL short4 *b, GLOBAL float *f, GLOBAL double *g, GLOBAL long *q, GLOBAL float4 *c, GLOBAL double4 *d, GLOBAL int4 *k) {
    unsigned i = lane();
    c[i] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(b[i], b[i + 1], (float4){0, 0, 0, 0}, 0, 0, 0);
    c[i + 1] = __builtin_amdgcn_mfma_f32_16x16x4f32(f[i], f[i + 1], c[i + 2], 0, 0, 0);
    c[i + 3] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(q[i], q[i + 1], c[i + 4], 0, 0, 0);
    d[i] = __builtin_amdgcn_mfma_f64_16x16x4f64(g[i], g[i + 1], d[i + 1], 0, 0, 0);
    k[i] = __builtin_amdgcn_mfma_i32_16x16x32_i8(q[i], q[i + 2], k[i + 1], 0, 0, 0);
}

#ifdef __gfx950__
KERNEL gfx950_shapes(GLOBAL half8 *a, GLOBAL bf8 *b, GLOBAL float4 *c, GLOBAL float16 *d) {
    unsigned i = lane();
    c[i] = __builtin_amdgcn_mfma_f32_16x16x32_f16(a[i], a[i + 1], c[i + 1], 0, 0, 0);
    d[i] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(b[i], b[i + 1], d[i + 1], 0, 0, 0);
}

KERNEL scaled(GLOBAL int8 *a, GLOBAL float4 *c, GLOBAL float16 *d, int s, GLOBAL int *t) {
    unsigned i = lane();
    c[i] = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a[i], a[i + 1], c[i + 1], 0, 0, 0, t[i], 1, s);
    c[i + 2] = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a[i], a[i + 1], c[i + 3], 4, 2, 2, t[i], 3, t[i + 1]);
    d[i] = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a[i], a[i + 1], d[i + 1], 1, 3, 1, t[i], 2, t[i + 1]);
}

KERNEL swaps(GLOBAL int *a) {
    typedef unsigned uint2 __attribute__((ext_vector_type(2)));
    unsigned i = lane();
    uint2 x = __builtin_amdgcn_permlane32_swap((unsigned)a[i], (unsigned)a[i + 1], 0, 0);
    uint2 y = __builtin_amdgcn_permlane16_swap(x.x, x.y, 1, 0);
    a[i] = (int)(y.x + y.y);
}
#endif
