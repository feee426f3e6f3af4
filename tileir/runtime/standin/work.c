/* Pending work. Nothing that is given to a stream is done before somebody waits: a caller that changes or frees host memory
 * too early gets wrong results here, as it may on a GPU. Work of all streams is done in the order in which it was given. */
#include "standin.h"

#include <stdlib.h>

struct Counts standin_counts;
int work_launches = 1;

static struct Work *first, **end = &first;
static double now;             /* the virtual clock, milliseconds */
static hipError_t failure = 0; /* of a kernel: stays, as on a GPU */

/* The virtual clock: what a piece of work takes. Round numbers, so that times in tests are exact. */
#define LAUNCH_MILLISECONDS 0.25
#define BYTES_PER_MILLISECOND 4294967296.0

struct Work *work_new(int kind, int device) {
  struct Work *work = calloc(1, sizeof *work);
  if (work) {
    work->kind = kind;
    work->device = device;
  }
  return work;
}

void work_free(struct Work *work) {
  free(work->arguments);
  free(work);
}

static hipError_t launch(struct Work *w) {
  standin_counts.launches++;
  if (!work_launches)
    return OK;
  uint64_t lds_and_device = (uint64_t)w->lds << 32 | (uint32_t)w->device;
  uint64_t arguments[8] = {w->module,   w->grid[0],  w->grid[1],  w->grid[2],
                           w->block[0], w->block[1], w->block[2], lds_and_device};
  return wire_ask(ASK_LAUNCH, arguments, w->arguments, w->bytes, NULL, 0, NULL);
}

static hipError_t perform(struct Work *w) {
  uint64_t arguments[8] = {(uint64_t)w->device, w->to, w->of, w->bytes, (uint64_t)w->value};
  switch (w->kind) {
  case DO_LAUNCH:
    now += LAUNCH_MILLISECONDS;
    return launch(w);
  case DO_EVENT:
    w->event->time = now;
    w->event->pending--;
    return OK;
  default:
    now += w->bytes / BYTES_PER_MILLISECOND;
  }
  switch (w->kind) {
  case DO_WRITE:
    return wire_ask(ASK_WRITE, arguments, (const void *)w->of, w->bytes, NULL, 0, NULL);
  case DO_READ:
    return wire_ask(ASK_READ, arguments, NULL, 0, (void *)w->to, w->bytes, NULL);
  case DO_COPY:
    return wire_ask(ASK_COPY, arguments, NULL, 0, NULL, 0, NULL);
  default:
    return wire_ask(ASK_FILL, arguments, NULL, 0, NULL, 0, NULL);
  }
}

int work_pending(void) { return first != NULL; }

hipError_t work_finish(void) {
  while (first) {
    struct Work *work = first;
    first = work->next;
    if (!first)
      end = &first;
    if (!failure || work->kind == DO_EVENT) {
      hipError_t code = perform(work);
      if (code)
        failure = code;
    }
    work_free(work);
  }
  return failure;
}

hipError_t work_give(struct Stream *stream, struct Work *work) {
  if (!work)
    return OUT_OF_MEMORY;
  if (stream && stream->capturing) {
    *stream->graph->end = work;
    stream->graph->end = &work->next;
    return OK;
  }
  if (failure) {
    work_free(work);
    return failure;
  }
  if (work->kind == DO_EVENT) {
    work->event->recorded = 1;
    work->event->pending++;
  }
  if (work->kind == DO_LAUNCH && !work_launches && !first) { /* launches that do nothing cost nothing either */
    standin_counts.launches++;
    now += LAUNCH_MILLISECONDS;
    work_free(work);
    return OK;
  }
  *end = work;
  end = &work->next;
  return OK;
}

struct Graph *graph_new(void) {
  struct Graph *graph = calloc(1, sizeof *graph);
  if (graph)
    graph->end = &graph->first;
  return graph;
}

static struct Work *copy(const struct Work *work) {
  struct Work *again = work_new(work->kind, work->device);
  if (!again)
    return NULL;
  *again = *work;
  again->next = NULL;
  again->arguments = NULL;
  if (work->arguments) {
    again->arguments = malloc(work->bytes + 1);
    if (!again->arguments) {
      free(again);
      return NULL;
    }
    for (uint64_t i = 0; i < work->bytes; i++)
      again->arguments[i] = work->arguments[i];
  }
  return again;
}

hipError_t graph_run(struct Graph *graph, struct Stream *stream) {
  hipError_t code = OK;
  for (struct Work *work = graph->first; work && !code; work = work->next)
    code = work_give(stream, copy(work));
  return code;
}

void graph_free(struct Graph *graph) {
  while (graph->first) {
    struct Work *work = graph->first;
    graph->first = work->next;
    work_free(work);
  }
  free(graph);
}
