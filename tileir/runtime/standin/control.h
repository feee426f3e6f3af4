/* What tests ask of the stand-in besides HIP. */
#ifndef TILEIR_STANDIN_CONTROL_H
#define TILEIR_STANDIN_CONTROL_H

#include "standin.h"

/* Which calls fail: "FUNCTION:CODE" all of one function, "FUNCTION@N:CODE" the Nth from now, "@N:CODE" the Nth of all; ""
 * none. Functions that give something back do so before they report. Also read from TILEIR_STANDIN_FAIL at the first call. */
API void hipStandinFail(const char *what);
/* What is alive, and how many calls and launches there were. */
API void hipStandinCounts(struct Counts *counts);
/* 0: launches are accepted and do nothing, as for measuring what a launch costs the caller. */
API void hipStandinLaunches(int on);
/* The name of the last function that was called. */
API const char *hipStandinLastCall(void);

/* For hip_api.c: the code with which a call is to fail, else 0. Takes the lock; leave() gives it back. */
hipError_t enter(const char *function);
hipError_t leave(hipError_t code);
hipError_t last_error(int forget);

#endif
