/* The parts of the stand-in: the HIP interface (hip_api.c, hip_streams.c), pending work (work.c), the simulator's process (wire.c). */
#ifndef TILEIR_STANDIN_H
#define TILEIR_STANDIN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int hipError_t;
typedef struct Stream *hipStream_t;
typedef struct Event *hipEvent_t;
typedef struct Module *hipModule_t;
typedef struct Function *hipFunction_t;
typedef struct Graph *hipGraph_t;
typedef struct Graph *hipGraphExec_t;

/* Numbers of hipError_t that the stand-in gives by itself. [HIP runtime API, ROCm 5 to 7] */
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  NO_BINARY = 209,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  NOT_READY = 600,
  OUT_OF_RESOURCES = 701,
  LAUNCH_FAILURE = 719,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  UNKNOWN = 999
};

/* What the simulator's process is asked; server.py has the same list. */
enum { ASK_DEVICES = 1, ASK_ALLOC, ASK_FREE, ASK_WRITE, ASK_READ, ASK_COPY, ASK_FILL, ASK_LOAD, ASK_UNLOAD, ASK_FUNCTION, ASK_LAUNCH };

#define MAX_DEVICES 8
#define MAX_ARGUMENTS 256
#define NAME_BYTES 256

struct Device {
  char architecture[NAME_BYTES];
  char name[NAME_BYTES];
  uint64_t memory_bytes;
  int32_t compute_units, lds_bytes, l2_bytes, clock_khz;
};

struct Argument {
  uint32_t offset, size;
};

struct Function {
  struct Module *module;
  uint64_t number;
  uint32_t count, bytes;
  struct Argument arguments[MAX_ARGUMENTS];
  struct Function *next;
};

struct Module {
  int device;
  uint64_t number;
  struct Function *functions;
};

/* One piece of work that was given to a stream. Host memory is read and written when it is done, not before. */
struct Work {
  enum { DO_LAUNCH, DO_WRITE, DO_READ, DO_COPY, DO_FILL, DO_EVENT } kind;
  int device;
  uint64_t to, of, bytes;
  int value;
  uint64_t module;
  uint32_t grid[3], block[3], lds;
  unsigned char *arguments;
  struct Event *event;
  struct Work *next;
};

struct Stream {
  int device;
  int capturing; /* 0 no, 1 yes, 2 broken */
  struct Graph *graph;
};

struct Event {
  int device;
  int recorded, pending;
  double time; /* of the virtual clock, milliseconds */
};

struct Graph {
  struct Work *first, **end;
};

struct Counts {
  int allocations, modules, streams, events, graphs;
  uint64_t calls, launches;
};

extern pthread_mutex_t standin_lock;
extern struct Counts standin_counts;

/* wire.c */
hipError_t wire_ask(uint32_t what, const uint64_t arguments[8], const void *data, uint64_t bytes, void *answer,
                    uint64_t room, uint64_t *value);

/* work.c: everything is called with standin_lock held */
extern int work_launches; /* 0: launches do nothing */
struct Work *work_new(int kind, int device);
hipError_t work_give(struct Stream *stream, struct Work *work);
hipError_t work_finish(void);
int work_pending(void);
void work_free(struct Work *work);
struct Graph *graph_new(void);
void graph_free(struct Graph *graph);
hipError_t graph_run(struct Graph *graph, struct Stream *stream);

#endif
