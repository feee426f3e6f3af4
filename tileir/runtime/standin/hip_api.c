/* The HIP interface. Prototypes and numbers as in the HIP runtime API of ROCm 5 to 7; only what programs that load code
 * objects need. */
#include "api.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef STANDIN_MAJOR
#define STANDIN_MAJOR 6
#endif
#define VERSION (STANDIN_MAJOR * 10000000 + 2 * 100000)

struct Allocation {
  uint64_t address, bytes;
  int device;
  struct Allocation *next;
};

static struct Device devices[MAX_DEVICES];
static struct Allocation *allocations;
int device_count = -1;
struct Stream *captured;
_Thread_local int current;

hipError_t begin(void) {
  if (device_count >= 0)
    return OK;
  uint64_t count = 0;
  hipError_t code = wire_ask(ASK_DEVICES, NULL, NULL, 0, devices, sizeof devices, &count);
  if (!code)
    device_count = (int)count;
  return code;
}

int breaks_capture(void) {
  if (captured)
    captured->capturing = 2;
  return captured != NULL;
}

static struct Allocation **find(uint64_t address) {
  struct Allocation **at = &allocations;
  while (*at && !(address >= (*at)->address && address < (*at)->address + (*at)->bytes))
    at = &(*at)->next;
  return at;
}

int device_of(hipStream_t stream) { return stream ? stream->device : current; }

API hipError_t hipInit(unsigned flags) {
  BEGIN;
  return leave(flags ? INVALID_VALUE : device_count ? OK : NO_DEVICE);
}

API hipError_t hipRuntimeGetVersion(int *version) {
  BEGIN;
  *version = VERSION;
  return leave(OK);
}

API hipError_t hipDriverGetVersion(int *version) {
  BEGIN;
  *version = VERSION;
  return leave(OK);
}

API hipError_t hipGetDeviceCount(int *count) {
  BEGIN;
  *count = device_count;
  return leave(device_count ? OK : NO_DEVICE);
}

API hipError_t hipSetDevice(int device) {
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  current = device;
  return leave(OK);
}

API hipError_t hipGetDevice(int *device) {
  BEGIN;
  *device = current;
  return leave(OK);
}

API hipError_t hipDeviceGet(int *handle, int device) {
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  *handle = device;
  return leave(OK);
}

API hipError_t hipDeviceGetName(char *name, int bytes, int device) {
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  REQUIRE(name && bytes > 0, INVALID_VALUE);
  snprintf(name, (size_t)bytes, "%s", devices[device].name);
  return leave(OK);
}

API hipError_t hipDeviceTotalMem(size_t *bytes, int device) {
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  *bytes = devices[device].memory_bytes;
  return leave(OK);
}

API hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  switch (attribute) {
  case 5: /* hipDeviceAttributeClockRate */
    *value = devices[device].clock_khz;
    break;
  case 19: /* hipDeviceAttributeL2CacheSize */
    *value = devices[device].l2_bytes;
    break;
  case 56: /* hipDeviceAttributeMaxThreadsPerBlock */
    *value = 1024;
    break;
  case 63: /* hipDeviceAttributeMultiprocessorCount */
    *value = devices[device].compute_units;
    break;
  case 74: /* hipDeviceAttributeMaxSharedMemoryPerBlock */
    *value = devices[device].lds_bytes;
    break;
  case 87: /* hipDeviceAttributeWarpSize */
    *value = 64;
    break;
  default:
    return leave(INVALID_VALUE);
  }
  return leave(OK);
}

/* Members of hipDeviceProp_t at their places, everything else zero. */
static void describe(char *out, int device, size_t bytes, size_t memory, size_t lds, size_t wave, size_t threads,
                     size_t units, size_t architecture) {
  const struct Device *d = &devices[device];
  const int lanes = 64, most = 1024;
  const size_t lds_bytes = (size_t)d->lds_bytes;
  memset(out, 0, bytes);
  memcpy(out, d->name, NAME_BYTES);
  memcpy(out + memory, &d->memory_bytes, sizeof d->memory_bytes);
  memcpy(out + lds, &lds_bytes, sizeof lds_bytes);
  memcpy(out + wave, &lanes, sizeof lanes);
  memcpy(out + threads, &most, sizeof most);
  memcpy(out + units, &d->compute_units, sizeof d->compute_units);
  memcpy(out + architecture, d->architecture, NAME_BYTES);
}

API hipError_t hipGetDeviceProperties(void *properties, int device) { /* the structure of ROCm 5 */
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  describe(properties, device, 652, 256, 264, 276, 280, 336, 396);
  return leave(OK);
}

#if STANDIN_MAJOR >= 6
API hipError_t hipGetDevicePropertiesR0600(void *properties, int device) {
  BEGIN;
  REQUIRE(device >= 0 && device < device_count, INVALID_DEVICE);
  describe(properties, device, 1472, 288, 296, 308, 320, 388, 1160);
  return leave(OK);
}
#endif

API hipError_t hipGetLastError(void) { return last_error(1); }
API hipError_t hipPeekAtLastError(void) { return last_error(0); }
static const char *name_of(hipError_t code) {
  static _Thread_local char text[32];
  snprintf(text, sizeof text, "HIP error %d", code);
  return code ? text : "hipSuccess";
}

API const char *hipGetErrorName(hipError_t code) { return name_of(code); }
API const char *hipGetErrorString(hipError_t code) { return name_of(code); }

/* ---- memory */
API hipError_t hipMalloc(void **address, size_t bytes) {
  BEGIN;
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  REQUIRE(address, INVALID_VALUE);
  REQUIRE(device_count, NO_DEVICE);
  *address = NULL;
  REQUIRE(bytes, OK);
  uint64_t arguments[8] = {(uint64_t)current, bytes}, at = 0;
  struct Allocation *new = malloc(sizeof *new);
  code = new ? wire_ask(ASK_ALLOC, arguments, NULL, 0, NULL, 0, &at) : OUT_OF_MEMORY;
  if (code) {
    free(new);
    return leave(code);
  }
  *new = (struct Allocation){at, bytes, current, allocations};
  allocations = new;
  standin_counts.allocations++;
  *address = (void *)at;
  return leave(OK);
}

API hipError_t hipFree(void *address) {
  hipError_t asked = enter(__func__);
  REQUIRE(address, asked);
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  struct Allocation **at = find((uint64_t)address);
  REQUIRE(*at && (*at)->address == (uint64_t)address, INVALID_VALUE);
  hipError_t code = work_finish();
  struct Allocation *old = *at;
  uint64_t arguments[8] = {(uint64_t)old->device, old->address};
  *at = old->next;
  free(old);
  standin_counts.allocations--;
  hipError_t freed = wire_ask(ASK_FREE, arguments, NULL, 0, NULL, 0, NULL);
  return leave(asked ? asked : code ? code : freed);
}

API hipError_t hipPointerGetAttributes(void *attributes, const void *address) {
  BEGIN;
  struct Allocation *at = *find((uint64_t)address);
  REQUIRE(at, INVALID_VALUE);
  struct {
    int kind, device;
    const void *on_device, *on_host;
    int managed;
    unsigned flags;
  } found = {2, at->device, address, NULL, 0, 0};
  memcpy(attributes, &found, sizeof found);
  return leave(OK);
}

/* A copy given to a stream; kind 1 to the device, 2 to the host, 3 on the device, 4 whichever it is. */
static hipError_t copy(void *to, const void *of, size_t bytes, int kind, hipStream_t stream) {
  struct Allocation *target = *find((uint64_t)to), *source = *find((uint64_t)of);
  if (kind == 4)
    kind = (target ? 1 : 0) + (source ? 2 : 0);
  if (kind < 1 || kind > 3 || (kind & 1 && !target) || (kind & 2 && !source))
    return INVALID_VALUE;
  if ((kind & 1 && (uint64_t)to + bytes > target->address + target->bytes) ||
      (kind & 2 && (uint64_t)of + bytes > source->address + source->bytes))
    return INVALID_VALUE;
  static const int kinds[] = {0, DO_WRITE, DO_READ, DO_COPY};
  struct Work *work = work_new(kinds[kind], kind & 1 ? target->device : source->device);
  if (!work)
    return OUT_OF_MEMORY;
  work->to = (uint64_t)to;
  work->of = (uint64_t)of;
  work->bytes = bytes;
  return work_give(stream, work);
}

API hipError_t hipMemcpy(void *to, const void *of, size_t bytes, int kind) {
  BEGIN;
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  REQUIRE(bytes, OK);
  code = copy(to, of, bytes, kind, NULL);
  return leave(code ? code : work_finish());
}

API hipError_t hipMemcpyAsync(void *to, const void *of, size_t bytes, int kind, hipStream_t stream) {
  BEGIN;
  REQUIRE(bytes, OK);
  return leave(copy(to, of, bytes, kind, stream));
}

API hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream) {
  BEGIN;
  struct Allocation *target = *find((uint64_t)to);
  REQUIRE(target && (uint64_t)to + bytes <= target->address + target->bytes, INVALID_VALUE);
  struct Work *work = work_new(DO_FILL, target->device);
  REQUIRE(work, OUT_OF_MEMORY);
  work->to = (uint64_t)to;
  work->bytes = bytes;
  work->value = value;
  return leave(work_give(stream, work));
}

/* ---- code objects */
static uint64_t elf_bytes(const unsigned char *image) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
  if (memcmp(image, ELFMAG, SELFMAG) || head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != 224 /* EM_AMDGPU */)
    return 0;
  uint64_t end = head->e_shoff + (uint64_t)head->e_shnum * head->e_shentsize;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(image + head->e_phoff);
  for (int i = 0; i < head->e_phnum; i++)
    if (segments[i].p_offset + segments[i].p_filesz > end)
      end = segments[i].p_offset + segments[i].p_filesz;
  return end;
}

API hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
  BEGIN;
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  REQUIRE(module && image, INVALID_VALUE);
  REQUIRE(device_count, NO_DEVICE);
  uint64_t bytes = elf_bytes(image), arguments[8] = {(uint64_t)current}, number = 0;
  REQUIRE(bytes, INVALID_IMAGE);
  struct Module *new = calloc(1, sizeof *new);
  code = new ? wire_ask(ASK_LOAD, arguments, image, bytes, NULL, 0, &number) : OUT_OF_MEMORY;
  if (code) {
    free(new);
    return leave(code);
  }
  new->device = current;
  new->number = number;
  standin_counts.modules++;
  *module = new;
  return leave(OK);
}

API hipError_t hipModuleUnload(hipModule_t module) {
  hipError_t asked = enter(__func__);
  REQUIRE(module, INVALID_HANDLE);
  hipError_t code = work_finish();
  uint64_t arguments[8] = {(uint64_t)module->device, module->number};
  hipError_t unloaded = wire_ask(ASK_UNLOAD, arguments, NULL, 0, NULL, 0, NULL);
  while (module->functions) {
    struct Function *function = module->functions;
    module->functions = function->next;
    free(function);
  }
  free(module);
  standin_counts.modules--;
  return leave(asked ? asked : code ? code : unloaded);
}

API hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  BEGIN;
  REQUIRE(function && module && name, INVALID_VALUE);
  uint64_t arguments[8] = {(uint64_t)module->device, module->number}, numbers = 0;
  struct Function *new = calloc(1, sizeof *new);
  code = new ? wire_ask(ASK_FUNCTION, arguments, name, strlen(name), new->arguments, sizeof new->arguments, &numbers)
             : OUT_OF_MEMORY;
  if (code) {
    free(new);
    return leave(code);
  }
  new->module = module;
  new->number = numbers >> 48;
  new->count = (uint32_t)(numbers >> 32 & 0xFFFF);
  new->bytes = (uint32_t)numbers;
  new->next = module->functions;
  module->functions = new;
  *function = new;
  return leave(OK);
}

API hipError_t hipFuncSetAttribute(const void *function, int attribute, int value) {
  BEGIN;
  REQUIRE(function, INVALID_VALUE);
  REQUIRE(attribute == 8 && value >= 0, INVALID_VALUE); /* hipFuncAttributeMaxDynamicSharedMemorySize */
  const struct Function *f = function;
  return leave(value <= devices[f->module->device].lds_bytes ? OK : INVALID_VALUE);
}

/* The bytes of the explicit arguments: a buffer in `extra`, or one pointer per argument. AMD's runtime takes `extra` in this order
 * only, and a size of zero for kernels without arguments only. */
static hipError_t gather(const struct Function *function, void **values, void **extra, struct Work *work) {
  uint64_t bytes = function->bytes;
  const unsigned char *given = NULL;
  if (extra) {
    if ((uintptr_t)extra[0] != 1 /* HIP_LAUNCH_PARAM_BUFFER_POINTER */ ||
        (uintptr_t)extra[2] != 2 /* HIP_LAUNCH_PARAM_BUFFER_SIZE */ || (uintptr_t)extra[4] != 3 /* HIP_LAUNCH_PARAM_END */)
      return INVALID_VALUE;
    given = extra[1];
    bytes = *(size_t *)extra[3];
    if (!function->count && bytes)
      return OUT_OF_RESOURCES;
    if (function->count && (!given || bytes < function->bytes))
      return INVALID_VALUE;
  }
  work->arguments = calloc(1, bytes + 1);
  work->bytes = bytes;
  if (!work->arguments)
    return OUT_OF_MEMORY;
  if (given) {
    memcpy(work->arguments, given, bytes);
    return OK;
  }
  for (uint32_t i = 0; i < function->count; i++) {
    if (!values || !values[i])
      return INVALID_VALUE;
    memcpy(work->arguments + function->arguments[i].offset, values[i], function->arguments[i].size);
  }
  return OK;
}

API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                     unsigned by, unsigned bz, unsigned lds, hipStream_t stream, void **values,
                                     void **extra) {
  BEGIN;
  REQUIRE(function, INVALID_HANDLE);
  REQUIRE(gx && gy && gz && bx && by && bz && (uint64_t)bx * by * bz <= 1024, INVALID_VALUE);
  REQUIRE(!(values && extra), INVALID_VALUE);
  REQUIRE(device_of(stream) == function->module->device, INVALID_HANDLE);
  struct Work *work = work_new(DO_LAUNCH, function->module->device);
  REQUIRE(work, OUT_OF_MEMORY);
  work->module = function->module->number << 16 | function->number;
  work->grid[0] = gx, work->grid[1] = gy, work->grid[2] = gz;
  work->block[0] = bx, work->block[1] = by, work->block[2] = bz;
  work->lds = lds;
  code = gather(function, values, extra, work);
  if (code) {
    work_free(work);
    return leave(code);
  }
  return leave(work_give(stream, work));
}

API void hipStandinLaunches(int on) {
  pthread_mutex_lock(&standin_lock);
  work_launches = on;
  pthread_mutex_unlock(&standin_lock);
}
