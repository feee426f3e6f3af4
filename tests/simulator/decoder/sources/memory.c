/* Global, LDS, scratch and buffer accesses, atomics, lane exchange, barriers. */
#define KERNEL __attribute__((amdgpu_kernel)) void
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
typedef int int2 __attribute__((ext_vector_type(2)));
typedef int int3 __attribute__((ext_vector_type(3)));
typedef int int4 __attribute__((ext_vector_type(4)));
typedef float float4 __attribute__((ext_vector_type(4)));

static unsigned lane(void) { return __builtin_amdgcn_workitem_id_x(); }

static LOCAL float buffer[2048] __attribute__((loader_uninitialized));
static LOCAL int4 wide[256] __attribute__((loader_uninitialized));
static LOCAL double cells[128] __attribute__((loader_uninitialized));
static LOCAL unsigned char bytes[512] __attribute__((loader_uninitialized));

KERNEL shared(GLOBAL float *a, GLOBAL int4 *b, GLOBAL double *c) {
    unsigned i = lane();
    buffer[i] = a[i];
    buffer[i + 64] = a[i + 64];
    buffer[i * 3] = a[i + 128];
    wide[i] = b[i];
    cells[i] = c[i];
    bytes[i] = (unsigned char)i;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    a[i] = buffer[63 - i] + buffer[i ^ 1] + buffer[i + 1024] + (float)bytes[511 - i];
    b[i] = wide[255 - i] + wide[i ^ 16];
    c[i] = cells[i + 1] + cells[i + 64];
    __atomic_fetch_add(&buffer[i & 7], 1.0f, __ATOMIC_RELAXED);
    __atomic_fetch_add((LOCAL int *)&wide[0] + i, 3, __ATOMIC_SEQ_CST);
}

KERNEL wide_accesses(GLOBAL int4 *a, GLOBAL int3 *b, GLOBAL int2 *c, GLOBAL short *s, GLOBAL signed char *h, long offset) {
    unsigned i = lane();
    int4 x = a[i] + a[i + 100];
    int3 y = b[i * 5];
    int2 z = c[i + offset];
    a[i + offset] = x + y.xyzx;
    c[i] = z + y.yz;
    b[i] = x.xyz;
    s[i] = (short)(s[i + 7] + h[i - 3]);
    h[i] = (signed char)(h[i] + s[i - 9]);
}

KERNEL atomics(GLOBAL int *a, GLOBAL unsigned *b, GLOBAL long *c, GLOBAL float *f, GLOBAL double *d) {
    unsigned i = lane();
    int old = __atomic_fetch_add(a + i, 5, __ATOMIC_RELAXED);
    __atomic_fetch_max(a + 64, old, __ATOMIC_ACQ_REL);
    __atomic_fetch_or(b + i, 0x80u, __ATOMIC_RELAXED);
    b[i + 1] = __atomic_exchange_n(b + 64, i, __ATOMIC_SEQ_CST);
    int expected = old;
    __atomic_compare_exchange_n(a + 3, &expected, 9, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    c[i] = __atomic_fetch_sub(c + i + 64, 3, __ATOMIC_RELAXED);
    long wanted = c[i];
    __atomic_compare_exchange_n(c + 2, &wanted, 4, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    __atomic_fetch_add(f + i, 0.5f, __ATOMIC_RELAXED);
    __atomic_fetch_add(d + i, 0.5, __ATOMIC_RELAXED);
}

KERNEL lanes(GLOBAL int *a, GLOBAL unsigned long *m) {
    unsigned i = lane();
    int x = a[i];
    x += __builtin_amdgcn_ds_bpermute((int)((i ^ 5) * 4), x);
    x += __builtin_amdgcn_ds_permute((int)(i * 8), x);
    x += __builtin_amdgcn_ds_swizzle(x, 0x401f);
    x += __builtin_amdgcn_ds_swizzle(x, 0x80b1);
    x += __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xf, 1);
    x += __builtin_amdgcn_update_dpp(x, x, 0x142, 0xa, 0xf, 0);
    x += __builtin_amdgcn_update_dpp(0, x, 0x1b, 0xf, 0x3, 0);
    x += __builtin_amdgcn_mov_dpp(x, 0x141, 0xf, 0xf, 1);
    x += __builtin_amdgcn_readfirstlane(x) + __builtin_amdgcn_readlane(x, 7);
    x += (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    m[i] = __builtin_amdgcn_ballot_w64(x > 3) ^ __builtin_readcyclecounter() ^ __builtin_amdgcn_s_memrealtime();
    a[i] = x;
}

KERNEL buffers(GLOBAL float4 *a, GLOBAL void *p, int n) {
    unsigned i = lane();
    __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)p, 0, n, 0x27000);
    int4 x = __builtin_bit_cast(int4, __builtin_amdgcn_raw_buffer_load_b128(r, (int)i * 16, n, 0));
    int y = (int)__builtin_amdgcn_raw_buffer_load_b32(r, (int)i * 4 + 1024, 0, 0);
    short z = (short)__builtin_amdgcn_raw_buffer_load_b16(r, (int)i * 2, 64, 1);
    __builtin_amdgcn_raw_buffer_store_b32((unsigned)y + (unsigned)z, r, (int)i * 4, 0, 0);
    a[i] = __builtin_convertvector(x, float4);
    __builtin_amdgcn_s_waitcnt(0x0f70);
    __builtin_amdgcn_s_setprio(2);
    __builtin_amdgcn_sched_barrier(0);
}

__attribute__((noinline)) static int deep(int depth, int *cells) {
    int local[40];
    for (int k = 0; k < 40; k++)
        local[k] = cells[k & 3] + depth * k;
    return depth > 0 ? deep(depth - 1, local) + local[depth] : local[cells[1] & 31];
}

KERNEL scratch(GLOBAL int *a, int n) {
    int cells[16];
    for (int k = 0; k < 16; k++)
        cells[k] = a[k];
    cells[a[lane()] & 15] = n;
    a[lane()] = deep(n, cells) + cells[n & 15];
}
