/* Every call passes here: counting, errors that were asked for, the last error of a thread. */
#include "control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local hipError_t last;
static char fail_function[64], last_call[64];
static long fail_in; /* calls until the one that fails; 0: all fail */
static int fail_code, begun;

static void plan(const char *what) {
  char text[128];
  fail_code = 0;
  fail_in = 0;
  snprintf(text, sizeof text, "%s", what);
  char *code = strrchr(text, ':');
  if (!code)
    return;
  *code++ = 0;
  char *at = strchr(text, '@');
  if (at) {
    *at++ = 0;
    fail_in = atol(at);
  }
  snprintf(fail_function, sizeof fail_function, "%s", text);
  fail_code = atoi(code);
}

API void hipStandinFail(const char *what) {
  pthread_mutex_lock(&standin_lock);
  begun = 1;
  plan(what);
  pthread_mutex_unlock(&standin_lock);
}

API void hipStandinCounts(struct Counts *counts) {
  pthread_mutex_lock(&standin_lock);
  *counts = standin_counts;
  pthread_mutex_unlock(&standin_lock);
}

API const char *hipStandinLastCall(void) { return last_call; }

hipError_t enter(const char *function) {
  pthread_mutex_lock(&standin_lock);
  if (!begun) {
    const char *what = getenv("TILEIR_STANDIN_FAIL");
    begun = 1;
    plan(what ? what : "");
  }
  standin_counts.calls++;
  snprintf(last_call, sizeof last_call, "%s", function);
  if (!fail_code || (fail_function[0] && strcmp(function, fail_function)))
    return OK;
  if (!fail_in)
    return fail_code;
  if (--fail_in)
    return OK;
  hipError_t code = fail_code;
  fail_code = 0;
  return code;
}

hipError_t leave(hipError_t code) {
  if (code)
    last = code;
  pthread_mutex_unlock(&standin_lock);
  return code;
}

hipError_t last_error(int forget) {
  hipError_t code = last;
  if (forget)
    last = OK;
  return code;
}
