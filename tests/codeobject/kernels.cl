static int helper(int x, global int *p) {
  int a[16];
  for (int i = 0; i < 16; i++) a[i] = p[i] * x;
  return a[x & 15];
}

__attribute__((reqd_work_group_size(64, 2, 1)))
kernel void first(global int *restrict p, const int n, local float *scratch, global const float *q) {
  int g = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  scratch[g & 7] = q[g];
  if (g < n) p[g] = helper(g, p + 1) + __builtin_amdgcn_workitem_id_y();
}

kernel void second(global unsigned *p) {
  volatile int spill[64];
  spill[p[1] & 63] = p[2];
  p[__builtin_amdgcn_workitem_id_x()] = spill[p[3] & 63];
}
