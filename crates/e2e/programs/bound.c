/* A library whose calls of malloc and free go where RTLD_DEEPBIND sends them. */
#include <stdlib.h>

void *bound_malloc(size_t bytes) { return malloc(bytes); }
void *bound_calloc(size_t bytes) { return calloc(1, bytes); }
void *bound_realloc(void *block, size_t bytes) { return realloc(block, bytes); }
void bound_free(void *block) { free(block); }
