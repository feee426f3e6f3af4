/* The HIP interface: streams, events, graphs. */
#include "api.h"

#include <stdlib.h>

API hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
  BEGIN;
  (void)flags;
  REQUIRE(device_count, NO_DEVICE);
  struct Stream *new = calloc(1, sizeof *new);
  REQUIRE(new, OUT_OF_MEMORY);
  new->device = current;
  standin_counts.streams++;
  *stream = new;
  return leave(OK);
}

API hipError_t hipStreamCreate(hipStream_t *stream) { return hipStreamCreateWithFlags(stream, 0); }

API hipError_t hipStreamDestroy(hipStream_t stream) {
  hipError_t asked = enter(__func__);
  REQUIRE(stream, INVALID_HANDLE);
  hipError_t code = work_finish();
  if (captured == stream) {
    graph_free(stream->graph);
    captured = NULL;
    standin_counts.graphs--;
  }
  free(stream);
  standin_counts.streams--;
  return leave(asked ? asked : code);
}

API hipError_t hipStreamSynchronize(hipStream_t stream) {
  BEGIN;
  (void)stream;
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  return leave(work_finish());
}

API hipError_t hipStreamQuery(hipStream_t stream) {
  BEGIN;
  (void)stream;
  return leave(work_pending() ? NOT_READY : OK);
}

API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  BEGIN;
  (void)stream;
  return leave(event && !flags ? OK : INVALID_VALUE); /* all streams are in one order anyway */
}

API hipError_t hipDeviceSynchronize(void) {
  BEGIN;
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  return leave(work_finish());
}

API hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
  BEGIN;
  (void)flags;
  struct Event *new = calloc(1, sizeof *new);
  REQUIRE(new, OUT_OF_MEMORY);
  new->device = current;
  standin_counts.events++;
  *event = new;
  return leave(OK);
}

API hipError_t hipEventCreate(hipEvent_t *event) { return hipEventCreateWithFlags(event, 0); }

API hipError_t hipEventDestroy(hipEvent_t event) {
  hipError_t asked = enter(__func__);
  REQUIRE(event, INVALID_HANDLE);
  hipError_t code = event->pending ? work_finish() : OK;
  free(event);
  standin_counts.events--;
  return leave(asked ? asked : code);
}

API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  BEGIN;
  REQUIRE(event, INVALID_HANDLE);
  struct Work *work = work_new(DO_EVENT, device_of(stream));
  REQUIRE(work, OUT_OF_MEMORY);
  work->event = event;
  return leave(work_give(stream, work));
}

API hipError_t hipEventSynchronize(hipEvent_t event) {
  BEGIN;
  REQUIRE(event, INVALID_HANDLE);
  REQUIRE(!breaks_capture(), CAPTURE_UNSUPPORTED);
  return leave(work_finish());
}

API hipError_t hipEventQuery(hipEvent_t event) {
  BEGIN;
  REQUIRE(event, INVALID_HANDLE);
  return leave(event->pending ? NOT_READY : OK);
}

API hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop) {
  BEGIN;
  REQUIRE(start && stop && start->recorded && stop->recorded, INVALID_HANDLE);
  REQUIRE(!start->pending && !stop->pending, NOT_READY);
  *milliseconds = (float)(stop->time - start->time);
  return leave(OK);
}

/* ---- graphs */
API hipError_t hipStreamBeginCapture(hipStream_t stream, int mode) {
  BEGIN;
  (void)mode;
  REQUIRE(stream && !captured, stream ? ILLEGAL_STATE : CAPTURE_UNSUPPORTED);
  stream->graph = graph_new();
  REQUIRE(stream->graph, OUT_OF_MEMORY);
  stream->capturing = 1;
  captured = stream;
  standin_counts.graphs++;
  return leave(OK);
}

API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
  BEGIN;
  REQUIRE(stream && captured == stream, CAPTURE_UNMATCHED);
  int broken = stream->capturing == 2;
  *graph = broken ? NULL : stream->graph;
  if (broken) {
    graph_free(stream->graph);
    standin_counts.graphs--;
  }
  stream->graph = NULL;
  stream->capturing = 0;
  captured = NULL;
  return leave(broken ? CAPTURE_INVALIDATED : OK);
}

/* An executable graph is the graph itself here: it must outlive it. */
API hipError_t hipGraphInstantiate(hipGraphExec_t *executable, hipGraph_t graph, void *node, char *log, size_t bytes) {
  BEGIN;
  (void)node, (void)log, (void)bytes;
  REQUIRE(executable && graph, INVALID_VALUE);
  *executable = graph;
  return leave(OK);
}

API hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  BEGIN;
  REQUIRE(executable, INVALID_VALUE);
  return leave(graph_run(executable, stream));
}

API hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  BEGIN;
  return leave(executable ? OK : INVALID_VALUE);
}

API hipError_t hipGraphDestroy(hipGraph_t graph) {
  BEGIN;
  REQUIRE(graph, INVALID_VALUE);
  graph_free(graph);
  standin_counts.graphs--;
  return leave(OK);
}
