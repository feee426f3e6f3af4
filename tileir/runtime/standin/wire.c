/* Talking to the simulator: a child process that answers one request at a time over a pair of sockets. */
#include "standin.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

static int channel = -1;
static pid_t owner = -1; /* the process that started the child: a fork of it has none */

/* Reads or writes everything; 0 if the other side has gone. */
static int all(int out, void *data, uint64_t bytes) {
  char *at = data;
  while (bytes) {
    ssize_t n = out ? send(channel, at, bytes, MSG_NOSIGNAL) : recv(channel, at, bytes, 0);
    if (n <= 0)
      return 0;
    at += n;
    bytes -= (uint64_t)n;
  }
  return 1;
}

static int start(void) {
  int pair[2];
  if (owner == getpid())
    return channel >= 0;
  owner = getpid();
  channel = -1;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
    return 0;
  fcntl(pair[0], F_SETFD, FD_CLOEXEC);
  char number[16];
  snprintf(number, sizeof number, "%d", pair[1]);
  const char *python = getenv("TILEIR_STANDIN_PYTHON");
  char *command[] = {(char *)(python ? python : STANDIN_PYTHON), "-E", "-c",
                     "import sys; sys.path[:1] = [sys.argv[1]]; " /* not the directory of the client */
                     "from tileir.runtime.standin.server import main; main(int(sys.argv[2]))",
                     STANDIN_ROOT, number, NULL};
  pid_t child;
  int failed = posix_spawn(&child, command[0], NULL, NULL, command, environ);
  close(pair[1]);
  if (failed) {
    fprintf(stderr, "HIP stand-in: cannot start '%s': %s\n", command[0], strerror(failed));
    close(pair[0]);
    return 0;
  }
  channel = pair[0];
  return 1;
}

struct Request {
  uint32_t what, unused;
  uint64_t arguments[8];
  uint64_t bytes;
};

struct Answer {
  int32_t code;
  uint32_t unused;
  uint64_t value, bytes;
};

hipError_t wire_ask(uint32_t what, const uint64_t arguments[8], const void *data, uint64_t bytes, void *answer,
                    uint64_t room, uint64_t *value) {
  struct Request request = {what, 0, {0}, bytes};
  struct Answer reply;
  if (arguments)
    memcpy(request.arguments, arguments, sizeof request.arguments);
  if (!start())
    return NOT_INITIALIZED;
  if (!all(1, &request, sizeof request) || !all(1, (void *)data, bytes) || !all(0, &reply, sizeof reply))
    return UNKNOWN;
  if (reply.bytes) {
    char *text = malloc(reply.bytes + 1);
    if (!text || !all(0, text, reply.bytes))
      return UNKNOWN;
    if (reply.code) {
      text[reply.bytes] = 0;
      fprintf(stderr, "HIP stand-in: %s\n", text);
    } else if (reply.bytes <= room) {
      memcpy(answer, text, reply.bytes);
    }
    free(text);
  }
  if (value)
    *value = reply.value;
  return reply.code;
}
