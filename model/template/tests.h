/* What may stand behind `is`. */
#ifndef HP_MODEL_TEMPLATE_TESTS_H
#define HP_MODEL_TEMPLATE_TESTS_H

#include "model/template/arguments.h"

/* HP_EUNSUPPORTED for a test that is not known. */
int run_test(struct run *r, struct text name, const struct value *in, const struct arguments *args,
             bool *out);

#endif
