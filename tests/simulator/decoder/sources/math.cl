// OpenCL C: vectors, images of types, work-item functions, generic pointers.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

size_t item(void) { return __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x(); }

void sync(void) {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    __builtin_amdgcn_s_barrier();
}

kernel void saxpy(global float4 *y, global const float4 *x, float a) {
    size_t i = item();
    y[i] = a * x[i] + y[i].wzyx;
}

kernel void reduce(global float *out, global const float *in, local float *cells, uint n) {
    uint i = __builtin_amdgcn_workitem_id_x();
    cells[i] = i < n ? in[i] : -__builtin_inff();
    sync();
    for (uint step = 128; step; step >>= 1) {
        if (i < step)
            cells[i] = __builtin_fmaxf(cells[i], cells[i + step]);
        sync();
    }
    if (i == 0)
        *out = cells[0];
}

kernel void convert(global uchar4 *a, global half4 *h, global double2 *d, global char8 *c) {
    size_t i = item();
    float4 f = __builtin_convertvector(a[i], float4) * 0.25f;
    h[i] = __builtin_convertvector(f, half4) * h[i + 1];
    d[i] = __builtin_convertvector(f.xy, double2) / d[i + 1];
    c[i] = c[i + 1] * (char8)(3) + (char8)(a[i].x);
}

kernel void pointers(global int *a, local int *b, int n) {
    int *p = n & 1 ? (int *)a : (int *)b;
    p[n] += 3;
    *(volatile int *)(p + 1) = n;
}
