/* What people look at in a browser: the documents of requests.h, made of what hpctl's verbs answer.
 */
#ifndef HP_COORDINATOR_DOCUMENTS_H
#define HP_COORDINATOR_DOCUMENTS_H

#include "coordinator/requests.h"

struct coord;

/* As requests.h says of `document`. */
int document_write(struct coord *c, enum request_document which, const char *name,
                   struct buffer *out, struct err *e);

#endif
