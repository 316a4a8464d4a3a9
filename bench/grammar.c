/* What holding an answer to a grammar costs a token: answers drawn by lot (each allowed token as
 * likely) under usual schemas, over a vocabulary of 151 936 tokens like those of large models: the
 * time of the mask, when it is first asked for and asked for again, and of accepting the token.
 * Microseconds of processor time, of each token the least of seven runs, which all begin anew and
 * draw the same answers: what else the box does in one of them, interrupts above all, takes longer
 * than a mask. An argument names a file with a vocabulary of its own: a byte of length and so many
 * bytes for each token. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/doubles.h"
#include "common/env.h"
#include "common/fs.h"
#include "model/grammar/automaton.h"
#include "model/grammar/grammar_source.h"

enum {
    VOCABULARY = 151936,
    ANSWERS = 60,
    RUNS = 7,
    MOST_TOKENS = 200,
    MOST_TIMES = 1 << 20,
    ASKED_US = 50,
    SLOTS = 1 << 19
};

static const struct {
    const char *name, *schema;
} kinds[] = {
    {"any JSON", NULL},
    {"strings and numbers",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,\"maximum\":150},\"mail\":{\"type\":\"string\",\"format\":"
     "\"email\"}"
     ",\"score\":{\"type\":\"number\"}},\"required\":[\"name\",\"age\",\"mail\",\"score\"],"
     "\"additionalProperties\":false}"},
    {"short strings",
     "{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"string\",\"maxLength\":24}}"},
    {"nested choices",
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"leaf\","
     "\"branch\","
     "\"root\"]},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":"
     "\"^[a-z]{2,8}(-[0-9]+)?$\"}},\"next\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/"
     "n\"}]}},\"required\":[\"kind\",\"tags\",\"next\"]}},\"$ref\":\"#/$defs/n\"}"},
    {"free members",
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"}},"
     "\"required\":[\"id\"],\"additionalProperties\":{\"type\":[\"string\",\"number\",\"boolean\"]}"
     "}"},
};

/* ---- a vocabulary ---- */

struct made_tokens {
    struct buffer bytes;
    struct token_text *texts;
    uint32_t n, slots[SLOTS]; /* a hash table of numbers + 1 */
};

/* Vocabularies have no token twice. */
static bool token_is_new(struct made_tokens *v, const char *bytes, size_t n)
{
    uint32_t at = 2166136261u;
    for (size_t i = 0; i < n; i++)
        at = (at ^ (uint8_t)bytes[i]) * 16777619u;
    for (at %= SLOTS; v->slots[at]; at = (at + 1) % SLOTS) {
        struct token_text t = v->texts[v->slots[at] - 1];
        if (t.size == n && memcmp(v->bytes.data + (size_t)t.bytes, bytes, n) == 0)
            return false;
    }
    v->slots[at] = v->n + 1;
    return true;
}

static bool vocabulary_add(struct made_tokens *v, const char *bytes, size_t n)
{
    if (v->n < VOCABULARY && !token_is_new(v, bytes, n))
        return true;
    if (v->n == VOCABULARY)
        return false;
    v->texts[v->n++] = (struct token_text){(const char *)v->bytes.size, (uint32_t)n};
    buffer_append(&v->bytes, bytes, n);
    return true;
}

/* Syllables are joined to words of many lengths, as merges make them, alone, behind a space and
 * with a capital; beside them a large vocabulary has bytes, digits, marks and their runs, and
 * characters of other scripts, one to four at a time. */
static void words_add(struct made_tokens *v, uint64_t *state)
{
    static const char *const syllables[] = {
        "a",  "e",   "in", "er", "on", "re", "at", "st",  "en",  "or",  "al",  "it",   "le",  "ing",
        "th", "ion", "an", "ed", "es", "de", "to", "con", "pro", "un",  "ly",  "ment", "ver", "s",
        "ti", "ra",  "co", "ma", "li", "ne", "ro", "ch",  "di",  "per", "tra", "sub",  "com", "ex"};
    char word[64];
    int parts = 1 + (int)(random_unit(state) * random_unit(state) * 7);
    bool spaced = random_unit(state) < 0.55, capital = random_unit(state) < 0.25;
    size_t n = 0;
    word[n] = ' ';
    n += spaced;
    size_t from = n;
    for (int i = 0; i < parts; i++) {
        const char *s =
            syllables[(size_t)(random_unit(state) * sizeof syllables / sizeof *syllables)];
        memcpy(word + n, s, strlen(s));
        n += strlen(s);
    }
    word[from] = (char)(word[from] - 32 * capital);
    vocabulary_add(v, word, n);
}

static void marks_add(struct made_tokens *v, uint64_t *state)
{
    static const char marks[] = "\"'()[]{}<>=+-*/\\\\|,.:;!?#$%&@^_~` \n\n\t0123456789";
    char text[16];
    size_t n = 1 + (size_t)(random_unit(state) * random_unit(state) * 8);
    for (size_t i = 0; i < n; i++)
        text[i] = marks[(size_t)(random_unit(state) * (sizeof marks - 1))];
    vocabulary_add(v, text, n);
}

static void scripts_add(struct made_tokens *v, uint64_t *state)
{
    static const struct {
        uint32_t from, n;
    } blocks[] = {{0x4E00, 7000}, {0x430, 32}, {0x627, 36}, {0xAC00, 3000},
                  {0x3041, 90},   {0xE0, 32},  {0x905, 50}, {0xE01, 58}};
    char text[32];
    size_t n = 0, block = (size_t)(random_unit(state) * sizeof blocks / sizeof *blocks);
    size_t chars = 1 + (size_t)(random_unit(state) * random_unit(state) * 5);
    if (random_unit(state) < 0.2)
        text[n++] = ' ';
    for (size_t i = 0; i < chars; i++) {
        uint32_t c = blocks[block].from + (uint32_t)(random_unit(state) * blocks[block].n);
        if (c >= 0x800)
            text[n++] = (char)(0xE0 | c >> 12), text[n++] = (char)(0x80 | (c >> 6 & 63));
        else
            text[n++] = (char)(0xC0 | c >> 6);
        text[n++] = (char)(0x80 | (c & 63));
    }
    vocabulary_add(v, text, n);
}

static void vocabulary_make(struct made_tokens *v)
{
    uint64_t state = 7;
    for (int b = 0; b < 256; b++)
        vocabulary_add(v, (const char[]){(char)b}, 1);
    while (v->n < VOCABULARY) {
        double kind = random_unit(&state);
        if (kind < 0.64)
            words_add(v, &state);
        else if (kind < 0.665)
            marks_add(v, &state);
        else
            scripts_add(v, &state);
    }
}

static bool vocabulary_read(struct made_tokens *v, const char *path)
{
    struct buffer file = {0};
    struct err e = {0};
    if (fs_input_read(path, 64 << 20, &file, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return false;
    }
    for (size_t at = 0; at < file.size && at + 1 + file.data[at] <= file.size;
         at += 1u + file.data[at])
        vocabulary_add(v, (const char *)file.data + at + 1, file.data[at]);
    buffer_free(&file);
    return true;
}

static struct token_tree *tree_make(const char *path)
{
    static struct made_tokens v;
    v.texts = calloc(VOCABULARY, sizeof *v.texts);
    struct token_tree *t = NULL;
    bool fine = v.texts != NULL;
    if (fine && path)
        fine = vocabulary_read(&v, path);
    else if (fine)
        vocabulary_make(&v);
    for (uint32_t i = 0; fine && i < v.n; i++)
        v.texts[i].bytes = (const char *)v.bytes.data + (size_t)v.texts[i].bytes;
    if (fine && token_tree_make(v.texts, v.n, &t, NULL) < 0)
        t = NULL;
    free(v.texts);
    buffer_free(&v.bytes);
    return t;
}

/* ---- times ---- */

struct times {
    double *us;
    size_t n, most; /* of this run; of those before */
};

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void time_add(struct times *t, double us)
{
    if (t->n == MOST_TIMES)
        return;
    t->us[t->n] = t->n < t->most && t->us[t->n] < us ? t->us[t->n] : us;
    t->most = ++t->n > t->most ? t->n : t->most;
}

static void times_print(const char *name, struct times *t)
{
    double sum = 0;
    size_t above = 0;
    doubles_sort(t->us, t->n);
    for (size_t i = 0; i < t->n; i++) {
        sum += t->us[i];
        above += t->us[i] > ASKED_US;
    }
    if (t->n)
        printf(
            "  %-20s %6zu tokens: mean %5.1f, median %5.1f, 90 %% %5.1f, 99 %% %6.1f, most %6.1f; "
            "above %d: %zu\n",
            name, t->n, sum / (double)t->n, t->us[t->n / 2], t->us[t->n * 9 / 10],
            t->us[t->n * 99 / 100], t->us[t->n - 1], ASKED_US, above);
    t->n = t->most = 0;
}

/* One of the allowed tokens, each as likely. */
static uint32_t token_draw(const uint64_t *mask, uint32_t vocabulary, uint64_t *state)
{
    uint32_t n = 0, words = vocabulary / 64 + 1;
    for (uint32_t i = 0; i < words; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    uint32_t left = (uint32_t)(random_unit(state) * n), i = 0;
    for (; left >= (uint32_t)__builtin_popcountll(mask[i]); i++)
        left -= (uint32_t)__builtin_popcountll(mask[i]);
    uint64_t word = mask[i];
    for (; left; left--)
        word &= word - 1;
    return i * 64 + (uint32_t)__builtin_ctzll(word);
}

/* One answer; false: it failed. `cold`: masks that were not there. */
static bool answer_draw(struct automaton *a, const struct token_tree *t, uint64_t *state,
                        struct times *cold, struct times *warm, struct times *step)
{
    struct matcher *m = NULL;
    uint32_t end = 1; /* a byte that no answer has */
    struct err e = {0};
    bool ended = false;
    if (matcher_create(a, MOST_TOKENS, &end, 1, &m, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return false;
    }
    while (!ended) {
        double from = cpu_us();
        const uint64_t *mask = matcher_mask(m);
        double masked = cpu_us();
        if (!mask)
            break;
        matcher_mask(m);
        time_add(cold, masked - from);
        time_add(warm, cpu_us() - masked);
        uint32_t token = token_draw(mask, t->vocabulary, state);
        double drawn = cpu_us();
        if (!matcher_fits(m, token))
            token = matcher_shortest(m);
        matcher_accept(m, token);
        time_add(step, cpu_us() - drawn);
        ended = token == end;
    }
    if (matcher_error(m, &e) < 0)
        fprintf(stderr, "%s\n", e.text);
    matcher_destroy(&m);
    return ended;
}

static bool kind_measure(const char *schema, const struct token_tree *t, struct times *times)
{
    struct buffer wire = {0};
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    struct err e = {0};
    uint64_t state = 11;
    json_t *root = schema ? json_loads(schema, 0, NULL) : NULL;
    int rc = root ? grammar_source_schema(root, "schema", &wire, &e)
                  : grammar_source_json("schema", &wire, &e);
    rc = rc < 0 ? rc : grammar_read(wire.data, wire.size, &g, &e);
    rc = rc < 0 ? rc : automaton_create(&g, t, &a, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    bool fine = rc == 0;
    for (int i = 0; i < 3; i++)
        times[i].n = 0;
    for (int i = 0; fine && i < ANSWERS; i++)
        fine = answer_draw(a, t, &state, &times[0], &times[1], &times[2]);
    if (a)
        automaton_destroy(&a);
    buffer_free(&wire);
    json_decref(root);
    return fine;
}

int main(int argc, char **argv)
{
    struct times times[3] = {{0}};
    bool fine = true;
    double from = cpu_us();
    struct token_tree *t = tree_make(argc > 1 ? argv[1] : NULL);
    for (int i = 0; i < 3; i++)
        fine &= (times[i].us = malloc(MOST_TIMES * sizeof(double))) != NULL;
    if (!t || !fine)
        return 1;
    printf(
        "%u tokens, a prefix tree of %u nodes, made in %.0f ms; %d answers of at most %d tokens\n",
        t->vocabulary, t->n_nodes, (cpu_us() - from) / 1000, ANSWERS, MOST_TOKENS);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        printf("%s\n", kinds[i].name);
        for (int run = 0; run < RUNS; run++)
            fine &= kind_measure(kinds[i].schema, t, times);
        times_print("mask as it comes", &times[0]);
        times_print("mask that is there", &times[1]);
        times_print("fits and accept", &times[2]);
    }
    for (int i = 0; i < 3; i++)
        free(times[i].us);
    token_tree_destroy(&t);
    return fine ? 0 : 1;
}
