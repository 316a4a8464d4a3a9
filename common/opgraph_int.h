/* Between the files of opgraph. */
#ifndef HP_COMMON_OPGRAPH_INT_H
#define HP_COMMON_OPGRAPH_INT_H

#include "common/opgraph.h"

/* Fills a graph from a document: every value by itself is sound, the whole is not checked yet.
 * After an error the graph is opgraph_free's. */
int opgraph_read(struct opgraph *g, const struct json_at *at, struct err *e);

#endif
