#include <stdlib.h>

void lib_free(void *p) { free(p); }
