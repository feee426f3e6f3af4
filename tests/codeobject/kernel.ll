; A kernel with LDS, preloaded arguments, line numbers and a custom section. Placeholders: VERSION, DWARF.
target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [256 x i32] poison
@extra = private addrspace(4) constant [11 x i8] c"{\22a\22: 1234}", section ".tileir", align 1
@llvm.used = appending global [1 x ptr] [ptr addrspacecast (ptr addrspace(4) @extra to ptr)], section "llvm.metadata"

declare i32 @llvm.amdgcn.workitem.id.x()

define amdgpu_kernel void @add(ptr addrspace(1) inreg %A, ptr addrspace(1) inreg %B, i32 inreg %n, ptr addrspace(1) %C) #0 !dbg !5 {
  %t = call i32 @llvm.amdgcn.workitem.id.x(), !dbg !8
  %pa = getelementptr i32, ptr addrspace(1) %A, i32 %t, !dbg !8
  %a = load i32, ptr addrspace(1) %pa, !dbg !9
  %pl = getelementptr [256 x i32], ptr addrspace(3) @lds, i32 0, i32 %t, !dbg !9
  store i32 %a, ptr addrspace(3) %pl, !dbg !9
  %pb = getelementptr i32, ptr addrspace(1) %B, i32 %t, !dbg !9
  %b = load i32, ptr addrspace(1) %pb, !dbg !10
  %s = add i32 %a, %b, !dbg !10
  %s2 = add i32 %s, %n, !dbg !10
  %pc = getelementptr i32, ptr addrspace(1) %C, i32 %t, !dbg !11
  store i32 %s2, ptr addrspace(1) %pc, !dbg !11
  ret void, !dbg !11
}

attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "uniform-work-group-size"="true" "amdgpu-agpr-alloc"="0" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-no-hostcall-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-default-queue" "amdgpu-no-completion-action" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-lds-kernel-id" "amdgpu-no-flat-scratch-init" }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3, !4}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, producer: "test", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "add.tile", directory: "DIRECTORY")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 1, !"amdhsa_code_object_version", i32 VERSION}
!4 = !{i32 7, !"Dwarf Version", i32 DWARF}
!5 = distinct !DISubprogram(name: "add", file: !1, line: 3, type: !6, scopeLine: 3, spFlags: DISPFlagDefinition, unit: !0)
!6 = !DISubroutineType(types: !7)
!7 = !{null}
!8 = !DILocation(line: 4, column: 3, scope: !5)
!9 = !DILocation(line: 5, column: 7, scope: !5)
!10 = !DILocation(line: 6, column: 7, scope: !5)
!11 = !DILocation(line: 7, column: 1, scope: !5)
