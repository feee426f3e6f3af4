/* Reading bundles of TileIR in C: the code objects of one kernel for several chips and parameter sets in one file.
 *
 *   tileir_bundle bundle;
 *   const char *error = tileir_bundle_open(&bundle, data, size);               data stays where it is
 *   tileir_variant variant;
 *   error = tileir_bundle_find(&bundle, properties.gcnArchName, "gemm", "BM=128", &variant);
 *   tileir_symbol sizes[] = {{"M", 512}, {"N", 256}};
 *   unsigned grid[3];
 *   error = tileir_variant_grid(&variant, sizes, 2, grid);
 *   error = tileir_variant_set(&variant, kernargs, "A", &pointer, sizeof pointer);
 *
 * Needs the C99 standard library and GCC or Clang; knows nothing of HIP, allocates nothing. Functions that give a text give NULL
 * for success, else what is wrong. The format is described in docs/bundles.md. Names in manifests are ASCII. */
#ifndef TILEIR_BUNDLE_H
#define TILEIR_BUNDLE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILEIR_BUNDLE_HEADER 24
#define TILEIR_NAME 64 /* characters of a name, with the final zero */

/* A value of the manifest: from `at` on; `end` is the end of the manifest. `at` is NULL for a value that is not there. */
typedef struct {
  const char *at, *end;
} tileir_json;

typedef struct {
  const unsigned char *data;
  size_t size;
  tileir_json variants;
  int count;
  char message[1024];
} tileir_bundle;

typedef struct {
  tileir_bundle *bundle;
  tileir_json json;
  char kernel[TILEIR_NAME]; /* name of the function in the code object */
  char target[TILEIR_NAME]; /* chip, such as gfx950 */
  const void *code;         /* the code object, for hipModuleLoadData */
  size_t code_size;
  unsigned block[3]; /* threads of a workgroup */
  unsigned lds_bytes, kernarg_bytes;
  int arguments;
} tileir_variant;

typedef struct {
  char name[TILEIR_NAME];
  char kind[TILEIR_NAME]; /* view (a pointer), symbol (a size or stride), scalar */
  char type[TILEIR_NAME]; /* of the elements of a view, or of the value: bf16, i32, ... */
  unsigned offset, size;  /* in the kernarg segment, bytes */
  int written;            /* whether the kernel writes the view */
} tileir_argument;

typedef struct {
  const char *name;
  long long value;
} tileir_symbol;

/* ---- the little of JSON that manifests need */

static inline tileir_json tileir_json_none(void) {
  tileir_json none = {NULL, NULL};
  return none;
}

static inline tileir_json tileir_json_space(tileir_json v) {
  while (v.at && v.at < v.end && (*v.at == ' ' || *v.at == '\n' || *v.at == '\t' || *v.at == '\r'))
    v.at++;
  if (v.at && v.at == v.end)
    return tileir_json_none();
  return v;
}

/* What follows the value at v. */
static inline tileir_json tileir_json_skip(tileir_json v) {
  long depth = 0;
  v = tileir_json_space(v);
  if (!v.at)
    return v;
  do {
    char c = *v.at;
    if (c == '"') {
      for (v.at++; v.at < v.end && *v.at != '"'; v.at++)
        if (*v.at == '\\')
          v.at++;
      if (v.at >= v.end)
        return tileir_json_none();
      v.at++;
    } else if (c == '{' || c == '[') {
      depth++, v.at++;
    } else if (c == '}' || c == ']') {
      depth--, v.at++;
    } else if (depth) {
      v.at++;
    } else {
      while (v.at < v.end && !strchr(",]} \n\r\t", *v.at))
        v.at++;
    }
  } while (depth > 0 && v.at < v.end);
  return depth ? tileir_json_none() : v;
}

/* The first value of an array or the first key of an object. */
static inline tileir_json tileir_json_first(tileir_json v, char open) {
  v = tileir_json_space(v);
  if (!v.at || *v.at != open)
    return tileir_json_none();
  v.at++;
  v = tileir_json_space(v);
  return v.at && *v.at != ']' && *v.at != '}' ? v : tileir_json_none();
}

/* What follows the value at v and a comma. */
static inline tileir_json tileir_json_next(tileir_json v) {
  v = tileir_json_space(tileir_json_skip(v));
  if (!v.at || *v.at != ',')
    return tileir_json_none();
  v.at++;
  return tileir_json_space(v);
}

/* The value behind the key at v. */
static inline tileir_json tileir_json_value(tileir_json v) {
  v = tileir_json_space(tileir_json_skip(v));
  if (!v.at || *v.at != ':')
    return tileir_json_none();
  v.at++;
  return tileir_json_space(v);
}

/* The text of a string, number, true or false; 0 if there is none or it is longer than `size` allows. */
static inline int tileir_json_text(tileir_json v, char *out, size_t size) {
  v = tileir_json_space(v);
  tileir_json end = tileir_json_skip(v);
  if (!end.at)
    return 0;
  const char *from = v.at, *to = end.at;
  if (*from == '"')
    from++, to--;
  if ((size_t)(to - from) >= size)
    return 0;
  memcpy(out, from, (size_t)(to - from));
  out[to - from] = 0;
  return 1;
}

static inline tileir_json tileir_json_get(tileir_json object, const char *key) {
  char name[TILEIR_NAME];
  for (tileir_json v = tileir_json_first(object, '{'); v.at; v = tileir_json_next(tileir_json_value(v)))
    if (tileir_json_text(v, name, sizeof name) && !strcmp(name, key))
      return tileir_json_value(v);
  return tileir_json_none();
}

static inline tileir_json tileir_json_item(tileir_json array, int index) {
  tileir_json v = tileir_json_first(array, '[');
  while (v.at && index-- > 0)
    v = tileir_json_next(v);
  return v;
}

static inline int tileir_json_length(tileir_json array) {
  int count = 0;
  for (tileir_json v = tileir_json_first(array, '['); v.at; v = tileir_json_next(v))
    count++;
  return count;
}

static inline int tileir_json_size(tileir_json v, uint64_t most, uint64_t *out) {
  char text[32];
  if (!tileir_json_text(v, text, sizeof text) || text[0] < '0' || text[0] > '9')
    return 0;
  char *end;
  *out = strtoull(text, &end, 10);
  return !*end && *out <= most;
}

/* ---- bundles */

static inline uint64_t tileir_bundle_number(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  while (bytes-- > 0)
    value = value << 8 | at[bytes];
  return value;
}

/* CRC-32 as in zlib: polynomial 0xEDB88320, reflected. */
static inline uint32_t tileir_bundle_crc(const unsigned char *data, size_t size) {
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < size; i++) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

/* Opens a bundle that lies in memory, where it must stay. */
static inline const char *tileir_bundle_open(tileir_bundle *bundle, const void *data, size_t size) {
  memset(bundle, 0, sizeof *bundle);
  bundle->data = (const unsigned char *)data;
  bundle->size = size;
  if (size < TILEIR_BUNDLE_HEADER || memcmp(data, "TILEIRB", 7))
    return "this is not a bundle of TileIR";
  if (bundle->data[7] != '1')
    return "the bundle has a format that this header does not read; it reads format 1";
  uint64_t length = tileir_bundle_number(bundle->data + 16, 8);
  if (length > size - TILEIR_BUNDLE_HEADER)
    return "the bundle is damaged: it ends before its manifest does";
  const unsigned char *text = bundle->data + TILEIR_BUNDLE_HEADER;
  if (tileir_bundle_crc(text, (size_t)length) != tileir_bundle_number(bundle->data + 8, 4))
    return "the bundle is damaged: the checksum of its manifest does not fit";
  tileir_json manifest = {(const char *)text, (const char *)text + length};
  uint64_t format = 0;
  if (!tileir_json_size(tileir_json_get(manifest, "format"), INT_MAX, &format) || format != 1)
    return "the manifest has a format that this header does not read; it reads format 1";
  bundle->variants = tileir_json_get(manifest, "variants");
  bundle->count = tileir_json_length(bundle->variants);
  return bundle->count ? NULL : "the bundle holds nothing";
}

/* The variant of a number from 0 to bundle->count - 1, its code object checked. */
static inline const char *tileir_bundle_variant(tileir_bundle *bundle, int index, tileir_variant *out) {
  static const char damaged[] = "the manifest of the bundle is damaged";
  memset(out, 0, sizeof *out);
  out->bundle = bundle;
  out->json = tileir_json_item(bundle->variants, index);
  uint64_t offset = 0, size = 0, crc = 0, number = 0;
  if (!tileir_json_text(tileir_json_get(out->json, "kernel"), out->kernel, sizeof out->kernel) ||
      !tileir_json_text(tileir_json_get(out->json, "target"), out->target, sizeof out->target) ||
      !tileir_json_size(tileir_json_get(out->json, "offset"), bundle->size, &offset) ||
      !tileir_json_size(tileir_json_get(out->json, "size"), bundle->size - offset, &size) ||
      !tileir_json_size(tileir_json_get(out->json, "crc32"), UINT32_MAX, &crc))
    return damaged;
  for (int d = 0; d < 3; d++) {
    if (!tileir_json_size(tileir_json_item(tileir_json_get(out->json, "block"), d), 1024, &number))
      return damaged;
    out->block[d] = (unsigned)number;
  }
  if (!tileir_json_size(tileir_json_get(out->json, "lds_bytes"), INT_MAX, &number))
    return damaged;
  out->lds_bytes = (unsigned)number;
  if (!tileir_json_size(tileir_json_get(out->json, "kernarg_bytes"), INT_MAX, &number))
    return damaged;
  out->kernarg_bytes = (unsigned)number;
  out->arguments = tileir_json_length(tileir_json_get(out->json, "arguments"));
  out->code = bundle->data + offset;
  out->code_size = (size_t)size;
  if (tileir_bundle_crc(bundle->data + offset, (size_t)size) != crc)
    return "the bundle is damaged: the checksum of a code object does not fit";
  return NULL;
}

/* Whether a GPU that HIP calls `arch`, such as gfx950:sramecc+:xnack-, runs the code of a variant. */
static inline int tileir_variant_suits(tileir_json variant, const char *arch) {
  static const char *const modes[] = {"xnack", "sramecc"};
  char target[TILEIR_NAME], wanted[TILEIR_NAME], sign[TILEIR_NAME];
  size_t length = strcspn(arch, ":");
  if (!tileir_json_text(tileir_json_get(variant, "target"), target, sizeof target) || strlen(target) != length ||
      strncmp(target, arch, length))
    return 0;
  for (int m = 0; m < 2; m++) {
    if (!tileir_json_text(tileir_json_get(variant, modes[m]), wanted, sizeof wanted))
      return 0;
    snprintf(sign, sizeof sign, ":%s%c", modes[m], !strcmp(wanted, "on") ? '-' : '+');
    if ((!strcmp(wanted, "on") || !strcmp(wanted, "off")) && strstr(arch, sign))
      return 0;
  }
  return 1;
}

/* Whether the parameters of a variant have the values of `settings`, such as "BM=128,T=bf16" (NULL or "": any). */
static inline int tileir_variant_has(tileir_json variant, const char *settings) {
  tileir_json params = tileir_json_get(variant, "params");
  char name[TILEIR_NAME], value[TILEIR_NAME];
  while (settings && *settings) {
    size_t length = strcspn(settings, ","), equals = strcspn(settings, "=");
    if (equals >= length || equals >= sizeof name)
      return 0;
    memcpy(name, settings, equals);
    name[equals] = 0;
    if (!tileir_json_text(tileir_json_get(params, name), value, sizeof value) ||
        strlen(value) != length - equals - 1 || strncmp(value, settings + equals + 1, length - equals - 1))
      return 0;
    settings += length + (settings[length] == ',');
  }
  return 1;
}

/* Adds "kernel for chip {parameters}; " of every variant to the message. */
static inline void tileir_bundle_list(tileir_bundle *bundle) {
  char kernel[TILEIR_NAME], target[TILEIR_NAME], params[256];
  for (int i = 0; i < bundle->count; i++) {
    tileir_json v = tileir_json_item(bundle->variants, i);
    size_t used = strlen(bundle->message);
    if (tileir_json_text(tileir_json_get(v, "kernel"), kernel, sizeof kernel) &&
        tileir_json_text(tileir_json_get(v, "target"), target, sizeof target) &&
        tileir_json_text(tileir_json_get(v, "params"), params, sizeof params))
      snprintf(bundle->message + used, sizeof bundle->message - used, "%s%s for %s %s", i ? "; " : "", kernel, target, params);
  }
}

/* The first variant of a kernel (NULL: any) for a GPU that HIP calls `arch`, with the values of parameters in `settings`. */
static inline const char *tileir_bundle_find(tileir_bundle *bundle, const char *arch, const char *kernel,
                                             const char *settings, tileir_variant *out) {
  char name[TILEIR_NAME];
  for (int i = 0; i < bundle->count; i++) {
    tileir_json v = tileir_json_item(bundle->variants, i);
    if (kernel && (!tileir_json_text(tileir_json_get(v, "kernel"), name, sizeof name) || strcmp(name, kernel)))
      continue;
    if (tileir_variant_suits(v, arch) && tileir_variant_has(v, settings))
      return tileir_bundle_variant(bundle, i, out);
  }
  snprintf(bundle->message, sizeof bundle->message, "the bundle has no %s for %s%s%s; it has ",
           kernel ? kernel : "kernel", arch, settings && *settings ? " with " : "", settings ? settings : "");
  tileir_bundle_list(bundle);
  return bundle->message;
}

/* ---- arguments */

static inline const char *tileir_variant_argument(const tileir_variant *variant, int index, tileir_argument *out) {
  tileir_json a = tileir_json_item(tileir_json_get(variant->json, "arguments"), index);
  uint64_t offset = 0, size = 0;
  char written[TILEIR_NAME];
  memset(out, 0, sizeof *out);
  if (!tileir_json_text(tileir_json_get(a, "name"), out->name, sizeof out->name) ||
      !tileir_json_text(tileir_json_get(a, "kind"), out->kind, sizeof out->kind) ||
      !tileir_json_text(tileir_json_get(a, "type"), out->type, sizeof out->type) ||
      !tileir_json_size(tileir_json_get(a, "offset"), variant->kernarg_bytes, &offset) ||
      !tileir_json_size(tileir_json_get(a, "size"), variant->kernarg_bytes - offset, &size))
    return "the manifest of the bundle does not describe such an argument";
  out->offset = (unsigned)offset;
  out->size = (unsigned)size;
  out->written = tileir_json_text(tileir_json_get(a, "written"), written, sizeof written) && !strcmp(written, "true");
  return NULL;
}

/* Puts an argument by name into the kernarg segment, `variant->kernarg_bytes` bytes that were zero at first. */
static inline const char *tileir_variant_set(const tileir_variant *variant, void *kernargs, const char *name,
                                             const void *value, size_t size) {
  tileir_argument argument;
  for (int i = 0; i < variant->arguments; i++) {
    const char *error = tileir_variant_argument(variant, i, &argument);
    if (error)
      return error;
    if (!strcmp(argument.name, name)) {
      if (size != argument.size) {
        snprintf(variant->bundle->message, sizeof variant->bundle->message, "%s is %s of %u bytes, not of %zu", name,
                 argument.type, argument.size, size);
        return variant->bundle->message;
      }
      memcpy((char *)kernargs + argument.offset, value, size);
      return NULL;
    }
  }
  snprintf(variant->bundle->message, sizeof variant->bundle->message, "%s has no argument %s", variant->kernel, name);
  return variant->bundle->message;
}

/* Puts the sizes and strides that the kernel takes into the kernarg segment, as i32 or i64 as their type says. */
static inline const char *tileir_variant_set_symbols(const tileir_variant *variant, void *kernargs,
                                                     const tileir_symbol *symbols, int count) {
  tileir_argument argument;
  for (int i = 0; i < variant->arguments; i++) {
    const char *error = tileir_variant_argument(variant, i, &argument);
    if (error)
      return error;
    if (strcmp(argument.kind, "symbol"))
      continue;
    int found = 0;
    while (found < count && strcmp(symbols[found].name, argument.name))
      found++;
    if (found == count || symbols[found].value < 0 || (argument.size == 4 && symbols[found].value > INT32_MAX)) {
      snprintf(variant->bundle->message, sizeof variant->bundle->message, "%s of %s is %s", argument.name,
               variant->kernel, found == count ? "not given" : "out of range");
      return variant->bundle->message;
    }
    int64_t wide = symbols[found].value;
    int32_t narrow = (int32_t)wide;
    memcpy((char *)kernargs + argument.offset, argument.size == 4 ? (void *)&narrow : (void *)&wide, argument.size);
  }
  return NULL;
}

/* ---- grids */

typedef struct {
  const char *at;
  const tileir_symbol *symbols;
  int count, depth;
  const char *error;
} tileir_expression;

static inline long long tileir_expression_sum(tileir_expression *e);

static inline char tileir_expression_peek(tileir_expression *e) {
  while (*e->at == ' ')
    e->at++;
  return *e->at;
}

static inline long long tileir_expression_fail(tileir_expression *e, const char *error) {
  if (!e->error)
    e->error = error;
  e->at = "";
  return 0;
}

static inline int tileir_expression_take(tileir_expression *e, char c) {
  if (tileir_expression_peek(e) != c)
    return 0;
  e->at++;
  return 1;
}

static inline long long tileir_expression_divide(tileir_expression *e, long long a, long long b) {
  if (b == 0)
    return tileir_expression_fail(e, "the grid divides by zero");
  if (b == -1)
    return a == LLONG_MIN ? tileir_expression_fail(e, "the grid does not fit 64 bits") : -a;
  return a / b;
}

static inline long long tileir_expression_call(tileir_expression *e, const char *name, size_t length) {
  static const char *const known[] = {"cdiv", "mod", "min", "max"};
  long long a = tileir_expression_sum(e);
  if (!tileir_expression_take(e, ','))
    return tileir_expression_fail(e, "a grid expression is malformed");
  long long b = tileir_expression_sum(e);
  if (!tileir_expression_take(e, ')'))
    return tileir_expression_fail(e, "a grid expression is malformed");
  int which = 0;
  while (which < 4 && (strlen(known[which]) != length || strncmp(known[which], name, length)))
    which++;
  if (which == 2)
    return a < b ? a : b;
  if (which == 3)
    return a > b ? a : b;
  if (which == 4)
    return tileir_expression_fail(e, "a grid expression has an unknown function");
  long long quotient = tileir_expression_divide(e, a, b);
  if (e->error)
    return 0;
  long long rest = a - quotient * b;
  return which ? rest : quotient + (rest != 0 && (rest < 0) == (b < 0));
}

static inline int tileir_expression_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static inline long long tileir_expression_atom(tileir_expression *e) {
  char c = tileir_expression_peek(e);
  long long value = 0;
  if (++e->depth > 200)
    return tileir_expression_fail(e, "a grid expression is nested too deeply");
  if (c == '(') {
    e->at++;
    value = tileir_expression_sum(e);
    if (!tileir_expression_take(e, ')'))
      tileir_expression_fail(e, "a grid expression is malformed");
  } else if (c == '-') {
    e->at++;
    value = tileir_expression_atom(e);
    value = value == LLONG_MIN ? tileir_expression_fail(e, "the grid does not fit 64 bits") : -value;
  } else if (c >= '0' && c <= '9') {
    for (; *e->at >= '0' && *e->at <= '9'; e->at++)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *e->at - '0', &value))
        return tileir_expression_fail(e, "the grid does not fit 64 bits");
  } else if (tileir_expression_letter(c)) {
    const char *name = e->at;
    size_t length = 0;
    while (tileir_expression_letter(name[length]))
      length++;
    e->at += length;
    if (tileir_expression_take(e, '(')) {
      value = tileir_expression_call(e, name, length);
    } else {
      int i = 0;
      while (i < e->count && (strlen(e->symbols[i].name) != length || strncmp(e->symbols[i].name, name, length)))
        i++;
      value = i < e->count ? e->symbols[i].value : tileir_expression_fail(e, "the grid needs a symbol that is not given");
    }
  } else {
    tileir_expression_fail(e, "a grid expression is malformed");
  }
  e->depth--;
  return value;
}

static inline long long tileir_expression_product(tileir_expression *e) {
  long long a = tileir_expression_atom(e);
  for (;;) {
    if (tileir_expression_take(e, '*')) {
      if (__builtin_mul_overflow(a, tileir_expression_atom(e), &a))
        return tileir_expression_fail(e, "the grid does not fit 64 bits");
    } else if (tileir_expression_take(e, '/')) {
      a = tileir_expression_divide(e, a, tileir_expression_atom(e));
    } else {
      return a;
    }
  }
}

static inline long long tileir_expression_sum(tileir_expression *e) {
  long long a = tileir_expression_product(e);
  for (;;) {
    int plus = tileir_expression_take(e, '+');
    if (!plus && !tileir_expression_take(e, '-'))
      return a;
    long long b = tileir_expression_product(e);
    if (plus ? __builtin_add_overflow(a, b, &a) : __builtin_sub_overflow(a, b, &a))
      return tileir_expression_fail(e, "the grid does not fit 64 bits");
  }
}

/* The value of an expression of the manifest. */
static inline const char *tileir_evaluate(const char *text, const tileir_symbol *symbols, int count, long long *out) {
  tileir_expression e = {text, symbols, count, 0, NULL};
  *out = tileir_expression_sum(&e);
  if (!e.error && tileir_expression_peek(&e))
    e.error = "a grid expression is malformed";
  return e.error;
}

/* The grid in workgroups; with a 0 in it there is nothing to launch. */
static inline const char *tileir_variant_grid(const tileir_variant *variant, const tileir_symbol *symbols, int count,
                                              unsigned grid[3]) {
  tileir_json sizes = tileir_json_get(variant->json, "grid");
  char text[4096];
  for (int d = 0; d < 3; d++) {
    long long value = 1;
    tileir_json size = tileir_json_item(sizes, d);
    if (size.at) {
      if (!tileir_json_text(size, text, sizeof text))
        return "a grid expression is too long";
      const char *error = tileir_evaluate(text, symbols, count, &value);
      if (error)
        return error;
    }
    if (value < 0 || value > INT32_MAX)
      return "the grid is negative or larger than 2147483647";
    grid[d] = (unsigned)value;
  }
  return NULL;
}

#endif
