/* Launches `scale`, Y = a X, from a bundle of TileIR. Only the HIP API and tileir_bundle.h are needed:
 *
 *   tileir-opt scale.tile --bundle scale.tileb --target gfx942 --target gfx950 --set B=256 --set B=1024
 *   cc -I$(tileir-bundle --include) loader.c -lamdhip64 -o loader       with the headers of ROCm: -I/opt/rocm/include
 *   ./loader scale.tileb 1000 B=1024
 */
#ifdef TILEIR_MINIMAL_HIP
#include "hip_minimal.h" /* for machines without ROCm */
#else
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#endif

#include "tileir_bundle.h"

#define HIP(call)                                                                                                      \
  do {                                                                                                                 \
    hipError_t hip_code = (call);                                                                                      \
    if (hip_code != hipSuccess) {                                                                                      \
      fprintf(stderr, "loader: %s: %s\n", #call, hipGetErrorString(hip_code));                                         \
      return 1;                                                                                                        \
    }                                                                                                                  \
  } while (0)
#define TILEIR(call)                                                                                                   \
  do {                                                                                                                 \
    const char *tileir_error = (call);                                                                                 \
    if (tileir_error) {                                                                                                \
      fprintf(stderr, "loader: %s\n", tileir_error);                                                                   \
      return 1;                                                                                                        \
    }                                                                                                                  \
  } while (0)

/* A whole file; NULL if it cannot be read. */
static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  void *data = NULL;
  if (file && !fseek(file, 0, SEEK_END)) {
    long length = ftell(file);
    rewind(file);
    data = length > 0 ? malloc((size_t)length) : NULL;
    *size = data ? fread(data, 1, (size_t)length, file) : 0;
    if (data && *size != (size_t)length) {
      free(data);
      data = NULL;
    }
  }
  if (file)
    fclose(file);
  return data;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: loader BUNDLE N [SETTINGS]\n");
    return 2;
  }
  const char *settings = argc > 3 ? argv[3] : NULL;
  const int n = atoi(argv[2]);
  size_t size = 0;
  void *data = read_file(argv[1], &size);
  if (!data || n < 0) {
    fprintf(stderr, "loader: cannot read '%s', or N is negative\n", argv[1]);
    return 2;
  }

  /* The variant for this GPU. */
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  tileir_bundle bundle;
  tileir_variant variant;
  TILEIR(tileir_bundle_open(&bundle, data, size));
  TILEIR(tileir_bundle_find(&bundle, properties.gcnArchName, "scale", settings, &variant));
  hipModule_t module;
  hipFunction_t function;
  HIP(hipModuleLoadData(&module, variant.code));
  HIP(hipModuleGetFunction(&function, module, variant.kernel));

  /* Input and output. */
  const float a = 2.5f;
  const size_t bytes = (size_t)n * sizeof(float);
  float *x = malloc(bytes + 1), *y = malloc(bytes + 1);
  void *device_x, *device_y;
  if (!x || !y)
    return 1;
  for (int i = 0; i < n; i++)
    x[i] = (float)i;
  HIP(hipMalloc(&device_x, bytes + 1));
  HIP(hipMalloc(&device_y, bytes + 1));
  HIP(hipMemcpy(device_x, x, bytes, hipMemcpyHostToDevice));

  /* Arguments by name, and the grid for this size. */
  const tileir_symbol sizes[] = {{"N", n}};
  unsigned grid[3];
  char kernargs[4096] = {0};
  size_t kernarg_bytes = variant.kernarg_bytes;
  if (kernarg_bytes > sizeof kernargs)
    return 1;
  TILEIR(tileir_variant_set(&variant, kernargs, "X", &device_x, sizeof device_x));
  TILEIR(tileir_variant_set(&variant, kernargs, "Y", &device_y, sizeof device_y));
  TILEIR(tileir_variant_set(&variant, kernargs, "a", &a, sizeof a));
  TILEIR(tileir_variant_set_symbols(&variant, kernargs, sizes, 1));
  TILEIR(tileir_variant_grid(&variant, sizes, 1, grid));
  void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, kernargs, HIP_LAUNCH_PARAM_BUFFER_SIZE, &kernarg_bytes,
                   HIP_LAUNCH_PARAM_END};
  if (grid[0] && grid[1] && grid[2])
    HIP(hipModuleLaunchKernel(function, grid[0], grid[1], grid[2], variant.block[0], variant.block[1], variant.block[2],
                              0, NULL, NULL, extra));
  HIP(hipDeviceSynchronize());
  HIP(hipMemcpy(y, device_y, bytes, hipMemcpyDeviceToHost));

  int wrong = 0;
  for (int i = 0; i < n; i++)
    wrong += y[i] != a * x[i];
  printf("%s on %s: grid %u, block %u, %d of %d results are wrong\n", variant.kernel, properties.gcnArchName, grid[0],
         variant.block[0], wrong, n);
  HIP(hipFree(device_x));
  HIP(hipFree(device_y));
  HIP(hipModuleUnload(module));
  free(x);
  free(y);
  free(data);
  return wrong != 0;
}
