/* The declarations of the HIP runtime API that loader.c needs, to compile it where ROCm is not installed. Prototypes, numbers and
 * the place of gcnArchName are those of the HIP runtime API of ROCm 6 and 7. */
#ifndef TILEIR_HIP_MINIMAL_H
#define TILEIR_HIP_MINIMAL_H

#include <stddef.h>

typedef int hipError_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct {
  char name[256];
  char others[904];
  char gcnArchName[256];
  char more[56];
} hipDeviceProp_t;

enum { hipSuccess = 0, hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#define HIP_LAUNCH_PARAM_END ((void *)3)
#define hipGetDeviceProperties hipGetDevicePropertiesR0600

const char *hipGetErrorString(hipError_t error);
hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device);
hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 hipStream_t stream, void **arguments, void **extra);
hipError_t hipMalloc(void **address, size_t bytes);
hipError_t hipFree(void *address);
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, int kind);
hipError_t hipDeviceSynchronize(void);

#endif
