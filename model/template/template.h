/* Chat templates, run: an interpreter of the part of Jinja that published templates use, bounded in
 * steps, output, depth and memory (256 MiB of values in one run). What is known: for with loop.*,
 * if, set (of names, attributes of namespaces, blocks), macro, with, filter, generation, raw, break
 * and continue; expressions with slices, filters, tests and calls; the methods of strings and
 * dicts; range, namespace, dict, raise_exception and strftime_now. What is not (include, extends,
 * call, recursive loops, * and ** in calls) is named when it is met. */
#ifndef HP_MODEL_TEMPLATE_TEMPLATE_H
#define HP_MODEL_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"

struct chat_template;

struct template_limits {
    size_t max_steps;        /* nodes evaluated; 0: 10 million */
    size_t max_output_bytes; /* 0: 16 MiB */
    int64_t now_s; /* what strftime_now tells, seconds since 1970; 0: the system's clock */
};

/* Parses. HP_EPARSE, HP_EUNSUPPORTED or HP_ELIMIT (4 MiB; nesting of 120) with "line N: reason".
 * trim_blocks and lstrip_blocks are on, as published templates expect. */
int template_compile(const char *source, size_t size, struct chat_template **out, struct err *e);
void template_destroy(struct chat_template **t);

/* Runs with the members of the JSON object `variables` in scope. HP_EINVAL carries the template's
 * own raise_exception text, or "line N: reason" where the variables are not what it expects;
 * HP_EUNSUPPORTED and HP_ELIMIT name line and reason, too. On failure `out` is as it was.
 * Thread-safe: a compiled template is immutable. */
int template_render(const struct chat_template *t, const json_t *variables,
                    const struct template_limits *limits, struct buffer *out, struct err *e);

#endif
