#dom = #llvm.alias_scope_domain<id = distinct[0]<>, description = "lds">
#dma = #llvm.alias_scope<id = distinct[1]<>, domain = #dom, description = "dma">
#rd = #llvm.alias_scope<id = distinct[2]<>, domain = #dom, description = "reads">
module attributes {gpu.container_module} {
  gpu.module @gemm {
    llvm.mlir.global internal @lds() {addr_space = 3 : i32, alignment = 1024 : i64, dso_local} : !llvm.array<65536 x i8>
    llvm.mlir.global external hidden constant @tileir_meta("{\22answer\22: 42}") {addr_space = 4 : i32, section = ".tileir.meta", alignment = 4 : i64}
    llvm.func @k(%A: !llvm.ptr<1> {llvm.noalias, llvm.inreg}, %M: i32 {llvm.inreg}, %C: !llvm.ptr<1> {llvm.noalias, llvm.inreg}, %stride: i64 {llvm.inreg}, %alpha: f32) attributes {rocdl.kernel, argument_names = ["A", "M", "C", "s", "alpha"], rocdl.reqd_work_group_size = array<i32: 256, 1, 1>, rocdl.flat_work_group_size = "256,256", rocdl.waves_per_eu = 2 : i32} {
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c0_16 = llvm.mlir.constant(0 : i16) : i16
      %c16 = llvm.mlir.constant(16 : i32) : i32
      %c6 = llvm.mlir.constant(6 : i32) : i32
      %flags = llvm.mlir.constant(159744 : i32) : i32
      %bytes32 = llvm.shl %M, %c6 : i32
      %bytes = llvm.zext %bytes32 : i32 to i64
      %tid = rocdl.workitem.id.x range <i32, 0, 256> : i32
      %wid = rocdl.workgroup.id.x : i32
      %w = llvm.lshr %tid, %c6 : i32
      %wave = rocdl.readfirstlane %w : i32
      %rsrc = rocdl.make.buffer.rsrc %A, %c0_16, %bytes, %flags : !llvm.ptr<1> to <8>
      %r = rocdl.make.buffer.rsrc %C, %c0_16, %bytes, %flags : !llvm.ptr<1> to <8>
      %off = llvm.mul %tid, %c16 overflow<nsw, nuw> : i32
      %lds = llvm.mlir.addressof @lds : !llvm.ptr<3>
      %wb = llvm.shl %wave, %c6 : i32
      %ldsw = llvm.getelementptr inbounds %lds[%wb] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
      // 16 bytes a lane straight to LDS; immediate offset, aux
      rocdl.raw.ptr.buffer.load.lds %rsrc, %ldsw, %c16, %off, %c0, %c0, %c0 {alias_scopes = [#dma], noalias_scopes = [#rd]}
      %p1 = llvm.getelementptr inbounds %lds[%off] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
      %p2 = llvm.getelementptr inbounds %p1[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
      rocdl.s.waitcnt 3952
      rocdl.s.barrier
      rocdl.sched.barrier 0
      rocdl.s.setprio 1
      %fa = llvm.load %p2 {alignment = 16 : i64, alias_scopes = [#rd], noalias_scopes = [#dma]} : !llvm.ptr<3> -> vector<8xbf16>
      %fb = llvm.load %p1 {alignment = 16 : i64} : !llvm.ptr<3> -> vector<8xbf16>
      %z = llvm.mlir.constant(dense<0.0> : vector<4xf32>) : vector<4xf32>
      %d = rocdl.mfma.f32.16x16x32.bf16 %fa, %fb, %z, %c0, %c0, %c0 : (vector<8xbf16>, vector<8xbf16>, vector<4xf32>, i32, i32, i32) -> vector<4xf32>
      rocdl.s.setprio 0
      %tr = rocdl.ds.read.tr16.b64 %p1 : !llvm.ptr<3> -> vector<4xbf16>
      %tri = llvm.bitcast %tr : vector<4xbf16> to vector<2xi32>
      %h = llvm.fptrunc %d : vector<4xf32> to vector<4xbf16>
      %hi = llvm.bitcast %h : vector<4xbf16> to vector<2xi32>
      rocdl.raw.ptr.buffer.store %hi, %r, %off, %c0, %c0 : vector<2xi32>
      rocdl.raw.ptr.buffer.store %tri, %r, %off, %c16, %c0 : vector<2xi32>
      // scalar types through a buffer
      %b1 = rocdl.raw.ptr.buffer.load %rsrc, %off, %c0, %c0 : i16
      %b2 = rocdl.raw.ptr.buffer.load %rsrc, %off, %c16, %c0 : bf16
      %b3 = rocdl.raw.ptr.buffer.load %rsrc, %off, %c16, %c0 : i8
      %b4 = rocdl.raw.ptr.buffer.load %rsrc, %off, %c16, %c0 : f32
      %b5 = rocdl.raw.ptr.buffer.load %rsrc, %off, %c16, %c0 : vector<8xbf16>
      rocdl.raw.ptr.buffer.store %b1, %r, %off, %c0, %c0 : i16
      rocdl.raw.ptr.buffer.store %b2, %r, %off, %c0, %c0 : bf16
      rocdl.raw.ptr.buffer.store %b3, %r, %off, %c0, %c0 : i8
      rocdl.raw.ptr.buffer.store %b5, %r, %off, %c0, %c0 : vector<8xbf16>
      // mathematics
      %e = rocdl.exp2 %b4 f32 -> f32
      %e2 = llvm.intr.exp2(%b4) : (f32) -> f32
      %lg = llvm.intr.log2(%e) : (f32) -> f32
      %sq = llvm.intr.sqrt(%lg) : (f32) -> f32
      %sq2 = rocdl.sqrt %lg f32 -> f32
      %rc = rocdl.rcp %sq f32 -> f32
      %fm = llvm.intr.fma(%rc, %alpha, %e2) : (f32, f32, f32) -> f32
      %fmc = llvm.intr.fmuladd(%rc, %fm, %sq2) : (f32, f32, f32) -> f32
      %mx = llvm.intr.maxnum(%fm, %fmc) : (f32, f32) -> f32
      %mxx = llvm.intr.maximum(%fm, %mx) : (f32, f32) -> f32
      %ab = llvm.intr.fabs(%mxx) : (f32) -> f32
      %ng = llvm.fneg %ab : f32
      // DPP: row_shr:1 = 273; lane exchange by bpermute; permlane swap
      %dp = rocdl.update.dpp %ng, %ng with 273, 15, 15, false : f32
      %dpi = llvm.bitcast %dp : f32 to i32
      %bp = rocdl.ds_bpermute %off, %dpi : (i32, i32) -> i32
      %sw = rocdl.permlane32.swap %bp, %dpi, false, false : (i32, i32) -> !llvm.struct<(i32, i32)>
      %s0 = llvm.extractvalue %sw[0] : !llvm.struct<(i32, i32)>
      %sz = rocdl.ds_swizzle %s0, %c16 : (i32, i32) -> i32
      // divergent control flow
      %cond = llvm.icmp "ult" %tid, %M : i32
      llvm.cond_br %cond, ^bb1(%c0, %sz : i32, i32), ^bb2(%s0 : i32)
    ^bb1(%i: i32, %x: i32):
      %n = llvm.add %i, %c1 : i32
      %x2 = llvm.add %x, %n : i32
      %more = llvm.icmp "slt" %n, %tid : i32
      llvm.cond_br %more, ^bb1(%n, %x2 : i32, i32), ^bb2(%x2 : i32)
    ^bb2(%y: i32):
      rocdl.raw.ptr.buffer.store %y, %r, %off, %c16, %c0 : i32
      llvm.return
    }
  }
}
