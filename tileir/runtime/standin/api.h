/* What all functions of the interface begin with, and what they share. */
#ifndef TILEIR_STANDIN_API_H
#define TILEIR_STANDIN_API_H

#include "control.h"

#define BEGIN                                                                                                          \
  hipError_t code = enter(__func__);                                                                                   \
  if (!code)                                                                                                           \
    code = begin();                                                                                                    \
  if (code)                                                                                                            \
    return leave(code)
#define REQUIRE(condition, otherwise)                                                                                  \
  if (!(condition))                                                                                                    \
    return leave(otherwise)

extern int device_count;
extern struct Stream *captured;      /* the stream that is being captured */
extern _Thread_local int current;    /* the device of the thread */

/* Asks for the devices once. */
hipError_t begin(void);
/* Calls that a capture does not allow break it: whether there was one. */
int breaks_capture(void);
int device_of(hipStream_t stream);

#endif
