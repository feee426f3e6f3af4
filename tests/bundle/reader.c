/* What a program in C sees of a bundle: prints everything, or evaluates expressions. Used by test_c_reader.py. */
#include "tileir_bundle.h"

static int fail(const char *error) {
  printf("error: %s\n", error);
  return 1;
}

int main(int argc, char **argv) {
  static const tileir_symbol symbols[] = {{"M", 1000}, {"N", 77}, {"K", 4096}, {"LONG_1", 3000000000LL}, {"Z", 0}};
  const int count = sizeof symbols / sizeof *symbols;
  if (argc > 1 && !strcmp(argv[1], "-e")) { /* one expression a line */
    char line[8192];
    while (fgets(line, sizeof line, stdin)) {
      long long value;
      line[strcspn(line, "\n")] = 0;
      const char *error = tileir_evaluate(line, symbols, count, &value);
      if (error)
        printf("error: %s\n", error);
      else
        printf("%lld\n", value);
    }
    return 0;
  }
  FILE *file = fopen(argv[1], "rb");
  static char data[1 << 20];
  const size_t size = file ? fread(data, 1, sizeof data, file) : 0;
  char *exact = (char *)malloc(size + 1); /* so that a read beyond the end is beyond an allocation */
  memcpy(exact, data, size);
  tileir_bundle bundle;
  const char *error = tileir_bundle_open(&bundle, exact, size);
  if (error)
    return fail(error);
  if (argc > 3) { /* arch, kernel, settings */
    tileir_variant found;
    error = tileir_bundle_find(&bundle, argv[2], *argv[3] ? argv[3] : NULL, argc > 4 ? argv[4] : NULL, &found);
    if (error)
      return fail(error);
    printf("%s %s %zu\n", found.kernel, found.target, found.code_size);
    return 0;
  }
  for (int i = 0; i < bundle.count; i++) {
    tileir_variant v;
    unsigned grid[3] = {0, 0, 0};
    if ((error = tileir_bundle_variant(&bundle, i, &v)))
      return fail(error);
    if ((error = tileir_variant_grid(&v, symbols, count, grid)))
      printf("grid: %s\n", error);
    printf("%s %s code %zu block %u %u %u lds %u kernargs %u grid %u %u %u\n", v.kernel, v.target, v.code_size,
           v.block[0], v.block[1], v.block[2], v.lds_bytes, v.kernarg_bytes, grid[0], grid[1], grid[2]);
    for (int a = 0; a < v.arguments; a++) {
      tileir_argument argument;
      if ((error = tileir_variant_argument(&v, a, &argument)))
        return fail(error);
      printf("  %s %s %s at %u size %u written %d\n", argument.name, argument.kind, argument.type, argument.offset,
             argument.size, argument.written);
    }
    unsigned char *kernargs = (unsigned char *)calloc(1, v.kernarg_bytes + 1);
    if ((error = tileir_variant_set_symbols(&v, kernargs, symbols, count)))
      printf("  symbols: %s\n", error);
    printf("  ");
    for (unsigned b = 0; b < v.kernarg_bytes; b++)
      printf("%02x", kernargs[b]);
    printf("\n");
    free(kernargs);
  }
  free(exact);
  return 0;
}
