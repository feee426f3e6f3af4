#loop = #llvm.loop_annotation<unroll = <disable = true>>
module attributes {gpu.container_module} {
  gpu.module @gemm {
    llvm.mlir.global internal @lds() {addr_space = 3 : i32, alignment = 1024 : i64, dso_local} : !llvm.array<65536 x i8>
    llvm.func @k(%A: !llvm.ptr<1> {llvm.noalias, llvm.inreg} loc("gemm.tile":3:9), %K: i32 {llvm.inreg} loc("gemm.tile":3:9)) attributes {rocdl.kernel, argument_names = ["A", "K"], rocdl.reqd_work_group_size = array<i32: 256, 1, 1>, passthrough = [["amdgpu-flat-work-group-size", "256,256"], ["amdgpu-waves-per-eu", "1,1"], ["amdgpu-agpr-alloc", "16,256"], "amdgpu-no-dispatch-ptr", "amdgpu-no-queue-ptr", "amdgpu-no-implicitarg-ptr", "amdgpu-no-dispatch-id", "amdgpu-no-heap-ptr", "amdgpu-no-hostcall-ptr", "amdgpu-no-lds-kernel-id", "amdgpu-no-multigrid-sync-arg", "amdgpu-no-default-queue", "amdgpu-no-completion-action", "amdgpu-no-flat-scratch-init",  "amdgpu-no-workgroup-id-x", "amdgpu-no-workgroup-id-y","amdgpu-no-workgroup-id-z", "amdgpu-no-workitem-id-y", "amdgpu-no-workitem-id-z"]} {
      %c0 = llvm.mlir.constant(0 : i32) : i32 loc("gemm.tile":6:3)
      %c1 = llvm.mlir.constant(1 : i32) : i32 loc("gemm.tile":7:3)
      %c16 = llvm.mlir.constant(16 : i32) : i32 loc("gemm.tile":8:3)
      %tid = rocdl.workitem.id.x : i32 loc("gemm.tile":8:3)
      %off = llvm.mul %tid, %c16 : i32 loc("gemm.tile":9:3)
      %z0 = llvm.mlir.constant(dense<0.0> : vector<16xf32>) : vector<16xf32> loc("gemm.tile":11:3)
      %z = llvm.inline_asm asm_dialect = att "", "=a,0" %z0 : (vector<16xf32>) -> vector<16xf32> loc("gemm.tile":12:3)
      %lds = llvm.mlir.addressof @lds : !llvm.ptr<3> loc("gemm.tile":13:3)
      %base = llvm.getelementptr inbounds %lds[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 loc("gemm.tile":14:3)
      %go = llvm.icmp "sgt" %K, %c0 : i32 loc("gemm.tile":15:3)
      llvm.cond_br %go, ^loop(%c0, %z : i32, vector<16xf32>), ^done(%z : vector<16xf32>) loc("gemm.tile":16:3)
    ^loop(%i: i32 loc("gemm.tile":11:3), %acc: vector<16xf32> loc("gemm.tile":11:3)):
      %f = llvm.load %base {alignment = 16 : i64} : !llvm.ptr<3> -> vector<8xbf16> loc("gemm.tile":12:8)
      %p = llvm.getelementptr inbounds %base[4096] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8 loc("gemm.tile":19:3)
      %g = llvm.load %p {alignment = 16 : i64} : !llvm.ptr<3> -> vector<8xbf16>  loc("gemm.tile":13:8)
      %d = rocdl.mfma.f32.32x32x16.bf16 %f, %g, %acc, %c0, %c0, %c0 : (vector<8xbf16>, vector<8xbf16>, vector<16xf32>, i32, i32, i32) -> vector<16xf32> loc("gemm.tile":14:10)
      %n = llvm.add %i, %c1 : i32 loc("gemm.tile":22:3)
      %more = llvm.icmp "slt" %n, %K : i32 loc("gemm.tile":23:3)
      llvm.cond_br %more, ^loop(%n, %d : i32, vector<16xf32>), ^done(%d : vector<16xf32>) {loop_annotation = #loop} loc("gemm.tile":24:3)
    ^done(%r: vector<16xf32> loc("gemm.tile":11:3)):
      %o = llvm.inline_asm has_side_effects asm_dialect = att "", "=a,0" %r : (vector<16xf32>) -> vector<16xf32> loc("gemm.tile":26:3)
      %off64 = llvm.zext %off : i32 to i64 loc("gemm.tile":27:3)
      %q = llvm.getelementptr %A[%off64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8 loc("gemm.tile":28:3)
      llvm.store %o, %q {alignment = 16 : i64, nontemporal} : vector<16xf32>, !llvm.ptr<1> loc("gemm.tile":20:3)
      llvm.return  loc("gemm.tile":21:1)
    } loc("gemm.tile":3:1)
  } loc("gemm.tile":1:1)
} loc("gemm.tile":1:1)
