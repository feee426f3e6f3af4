module attributes {gpu.container_module} {
  gpu.module @gemm {
    llvm.mlir.global internal @lds() {addr_space = 3 : i32, alignment = 1024 : i64, dso_local} : !llvm.array<65536 x i8>
    llvm.mlir.global private constant @table(dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>) {addr_space = 4 : i32} : !llvm.array<4 x f32>
    llvm.func @k(%A: !llvm.ptr<1> {llvm.noalias}, %M: i32, %C: !llvm.ptr<1> {llvm.noalias}, %n64: i64, %alpha: f32) attributes {rocdl.kernel, rocdl.reqd_work_group_size = array<i32: 256, 1, 1>, passthrough = [["amdgpu-agpr-alloc", "4,256"]]} {
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c0_16 = llvm.mlir.constant(0 : i16) : i16
      %c16 = llvm.mlir.constant(16 : i32) : i32
      %c64 = llvm.mlir.constant(64 : i32) : i32
      %neg = llvm.mlir.constant(-1 : i32) : i32
      %inf = llvm.mlir.constant(0xFF800000 : f32) : f32
      %flags = llvm.mlir.constant(159744 : i32) : i32
      %bytes = llvm.mlir.constant(4294967295 : i64) : i64
      %tid = rocdl.workitem.id.x : i32
      %rsrc = rocdl.make.buffer.rsrc %A, %c0_16, %bytes, %flags : !llvm.ptr<1> to <8>
      %r = rocdl.make.buffer.rsrc %C, %c0_16, %bytes, %flags : !llvm.ptr<1> to <8>
      %off = llvm.mul %tid, %c16 : i32
      %lds = llvm.mlir.addressof @lds : !llvm.ptr<3>
      %p1 = llvm.getelementptr inbounds %lds[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
      %v = rocdl.raw.ptr.buffer.load %rsrc, %off, %c0, %c0 : vector<4xi32>
      llvm.store %v, %p1 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
      rocdl.s.waitcnt 49279
      rocdl.s.barrier
      %f = llvm.load %p1 {alignment = 16 : i64} : !llvm.ptr<3> -> vector<8xbf16>
      %fi = llvm.bitcast %f : vector<8xbf16> to vector<8xi16>
      %lo = llvm.shufflevector %fi, %fi [0, 1, 2, 3] : vector<8xi16>
      %hi = llvm.shufflevector %fi, %fi [4, 5, 6, 7] : vector<8xi16>
      %z0 = llvm.mlir.constant(dense<0.0> : vector<4xf32>) : vector<4xf32>
      %z = llvm.inline_asm has_side_effects asm_dialect = att "", "=a,0" %z0 : (vector<4xf32>) -> vector<4xf32>
      %d = rocdl.mfma.f32.16x16x16bf16.1k %lo, %hi, %z, %c0, %c0, %c0 : (vector<4xi16>, vector<4xi16>, vector<4xf32>, i32, i32, i32) -> vector<4xf32>
      %flo = llvm.shufflevector %f, %f [0, 1, 2, 3] : vector<8xbf16>
      %d2 = amdgpu.mfma 16x16x16 %flo * %flo + %d { abid = 0 : i32, cbsz = 0 : i32 } blgp = none : vector<4xbf16>, vector<4xbf16>, vector<4xf32>
      amdgpu.sched_barrier allow = <none>
      %h = llvm.fptrunc %d2 : vector<4xf32> to vector<4xbf16>
      rocdl.raw.ptr.buffer.store %h, %r, %off, %c0, %c0 : vector<4xbf16>
      // integers
      %q = llvm.udiv %off, %M : i32
      %rm = llvm.urem %off, %M : i32
      %s = llvm.sdiv %off, %M : i32
      %q64 = llvm.sext %off : i32 to i64
      %d64 = llvm.sdiv %n64, %q64 : i64
      %t = llvm.trunc %d64 : i64 to i32
      %mn = llvm.intr.smin(%q, %rm) : (i32, i32) -> i32
      %mx = llvm.intr.umax(%mn, %s) : (i32, i32) -> i32
      %cmp = llvm.icmp "slt" %mx, %t : i32
      %sel = llvm.select %cmp, %mx, %t : i1, i32
      %sf = llvm.sitofp %sel : i32 to f32
      %pk = rocdl.cvt.pk.fp8.f32 %sf, %alpha -> %c0[false] : i32
      %up = rocdl.cvt.f32.fp8 %pk[0] : f32
      %fc = llvm.fcmp "olt" %up, %inf : f32
      %sel2 = llvm.select %fc, %up, %alpha {fastmathFlags = #llvm.fastmath<none>} : i1, f32
      %add = llvm.fadd %sel2, %alpha {fastmathFlags = #llvm.fastmath<contract>} : f32
      %e0 = llvm.extractelement %d2[%c0 : i32] : vector<4xf32>
      %ins = llvm.insertelement %add, %d2[%c1 : i32] : vector<4xf32>
      rocdl.raw.ptr.buffer.store %ins, %r, %off, %c16, %c0 : vector<4xf32>
      %rl = rocdl.readlane %pk, %c16 : (i32, i32) -> i32
      %bal = rocdl.ballot %fc : i64
      %cnt = llvm.intr.ctpop(%bal) : (i64) -> i64
      %ln = rocdl.mbcnt.lo %neg, %c0 : (i32, i32) -> i32
      %ln2 = rocdl.mbcnt.hi %neg, %ln : (i32, i32) -> i32
      %ci = llvm.trunc %cnt : i64 to i32
      %x = llvm.add %ci, %ln2 : i32
      %x2 = llvm.xor %x, %rl : i32
      rocdl.raw.ptr.buffer.store %x2, %r, %off, %c16, %c0 : i32
      rocdl.raw.ptr.buffer.atomic.fadd %add, %r, %off, %c0, %c0 : f32
      // pointers: global access by address, and an intrinsic that has no op of its own
      %ga = llvm.getelementptr %A[%q64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      %gv = llvm.load %ga invariant {alignment = 4 : i64} : !llvm.ptr<1> -> f32
      %sinr = llvm.call_intrinsic "llvm.amdgcn.fract"(%gv) : (f32) -> f32
      %cvt = llvm.call_intrinsic "llvm.amdgcn.cvt.pkrtz"(%gv, %sinr) : (f32, f32) -> vector<2xf16>
      %cvti = llvm.bitcast %cvt : vector<2xf16> to i32
      %gc = llvm.getelementptr %C[%q64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i32
      llvm.store %cvti, %gc : i32, !llvm.ptr<1>
      %old = llvm.atomicrmw add %gc, %c1 syncscope("agent") monotonic : !llvm.ptr<1>, i32
      rocdl.raw.ptr.buffer.store %old, %r, %off, %c64, %c0 : i32
      %tb = llvm.mlir.addressof @table : !llvm.ptr<4>
      %ti = llvm.and %tid, %c1 : i32
      %ta = llvm.getelementptr inbounds %tb[%ti] : (!llvm.ptr<4>, i32) -> !llvm.ptr<4>, f32
      %tv = llvm.load %ta : !llvm.ptr<4> -> f32
      rocdl.raw.ptr.buffer.store %tv, %r, %off, %c64, %c0 : f32
      %fr = llvm.frem %tv, %gv : f32
      %fl = llvm.intr.floor(%fr) : (f32) -> f32
      %rne = llvm.intr.roundeven(%fl) : (f32) -> f32
      %sn = llvm.intr.sin(%rne) : (f32) -> f32
      %lgn = llvm.intr.log(%sn) : (f32) -> f32
      %ex = llvm.intr.exp(%lgn) : (f32) -> f32
      %dv = llvm.fdiv %ex, %tv : f32
      %pw = llvm.intr.copysign(%dv, %tv) : (f32, f32) -> f32
      %ld = llvm.intr.ldexp(%pw, %ci) : (f32, i32) -> f32
      rocdl.raw.ptr.buffer.store %ld, %r, %off, %c64, %c0 : f32
      llvm.cond_br %cmp weights([90, 10]), ^done, ^trap
    ^trap:
      llvm.intr.trap
      llvm.unreachable
    ^done:
      llvm.return
    }
  }
}
