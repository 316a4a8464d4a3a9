/* Megabytes of text a second that one core makes tokens of, by CPU time; and the same where every
 * word is looked at anew. The text is this repository's documents, repeated; models are those
 * named, or the demo model. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/fs.h"
#include "model/model.h"

enum { TEXT_BYTES = 4 << 20, SHORT_BYTES = 4000 };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void text_read(struct buffer *out)
{
    glob_t files;
    struct err e;
    struct buffer all = {0};
    if (glob("docs/*.md", 0, NULL, &files) == 0)
        for (size_t i = 0; i < files.gl_pathc; i++)
            fs_input_read(files.gl_pathv[i], TEXT_BYTES, &all, &e);
    globfree(&files);
    while (all.size > 0 && out->size < TEXT_BYTES)
        buffer_append(out, all.data, all.size);
    buffer_free(&all);
}

/* Megabytes a second, `part` bytes at a time. */
static double speed(const struct tokenizer *t, const struct buffer *text, size_t part, size_t *ids)
{
    struct buffer out = {0};
    struct err e = {0};
    double from = cpu_seconds();
    for (size_t at = 0; at < text->size; at += part) {
        size_t n = text->size - at < part ? text->size - at : part;
        if (tokenizer_encode(t, (const char *)text->data + at, n, false, &out, &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            exit(1);
        }
    }
    double seconds = cpu_seconds() - from;
    *ids = out.size / sizeof(uint32_t);
    buffer_free(&out);
    return (double)text->size / seconds / 1e6;
}

int main(int argc, char **argv)
{
    static char *usual[] = {"examples/demo-model/demo-q8_0.gguf"};
    char **paths = argc > 1 ? argv + 1 : usual;
    struct buffer text = {0};
    text_read(&text);
    for (int i = 0; i < (argc > 1 ? argc - 1 : 1); i++) {
        struct model *m;
        const struct tokenizer *t;
        struct err e = {0};
        size_t ids, short_ids;
        if (model_open_text(paths[i], &m, &e) < 0 || model_tokenizer(m, &t, &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        double whole = speed(t, &text, text.size, &ids),
               parts = speed(t, &text, SHORT_BYTES, &short_ids);
        printf("%-48s %-14s %6d tokens: %6.1f MB/s (%.2f bytes a token), %6.1f MB/s in texts of %d "
               "bytes\n",
               paths[i], tokenizer_kind(t), tokenizer_vocabulary(t), whole,
               (double)text.size / (double)ids, parts, SHORT_BYTES);
        model_close(&m);
    }
    buffer_free(&text);
    return 0;
}
