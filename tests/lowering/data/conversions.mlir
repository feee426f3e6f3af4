module attributes {gpu.container_module} {
  gpu.module @gemm {
    llvm.func @k(%A: !llvm.ptr<1> {llvm.noalias}) attributes {rocdl.kernel} {
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c0_16 = llvm.mlir.constant(0 : i16) : i16
      %bytes = llvm.mlir.constant(4294967295 : i64) : i64
      %flags = llvm.mlir.constant(159744 : i32) : i32
      %r = rocdl.make.buffer.rsrc %A, %c0_16, %bytes, %flags : !llvm.ptr<1> to <8>
      %a = rocdl.raw.ptr.buffer.load %r, %c0, %c0, %c0 : f32
      %b = rocdl.raw.ptr.buffer.load %r, %c0, %c0, %c0 : f32
      %b2 = llvm.fptrunc %b : f32 to bf16
      %x = llvm.mlir.undef : vector<2xf32>
      %x1 = llvm.insertelement %a, %x[%c0 : i32] : vector<2xf32>
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %x2 = llvm.insertelement %b, %x1[%c1 : i32] : vector<2xf32>
      %h = llvm.fptrunc %x2 : vector<2xf32> to vector<2xbf16>
      rocdl.raw.ptr.buffer.store %h, %r, %c0, %c0, %c0 : vector<2xbf16>
      rocdl.raw.ptr.buffer.store %b2, %r, %c0, %c0, %c0 : bf16
      %af = llvm.fpext %b2 : bf16 to f32
      %v2 = rocdl.raw.ptr.buffer.load %r, %c0, %c0, %c0 : vector<2xi16>
      %v2b = llvm.bitcast %v2 : vector<2xi16> to vector<2xbf16>
      %v2e = llvm.fpext %v2b : vector<2xbf16> to vector<2xf32>
      %v2s = llvm.fadd %v2e, %x2 : vector<2xf32>
      rocdl.raw.ptr.buffer.store %v2s, %r, %c0, %c0, %c0 : vector<2xf32>
      %hf = llvm.fptrunc %v2s : vector<2xf32> to vector<2xf16>
      rocdl.raw.ptr.buffer.store %hf, %r, %c0, %c0, %c0 : vector<2xf16>
      %sat = llvm.fptosi %af : f32 to i32
      %cl = rocdl.fmed3 %a, %b, %af : f32
      rocdl.raw.ptr.buffer.store %sat, %r, %c0, %c0, %c0 : i32
      rocdl.raw.ptr.buffer.store %cl, %r, %c0, %c0, %c0 : f32
      rocdl.s.nop 1
      rocdl.sched.group.barrier 8, 1, 0
      rocdl.iglp.opt 0
      llvm.return
    }
  }
}
