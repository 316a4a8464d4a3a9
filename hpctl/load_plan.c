#include "hpctl/load_plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/vector.h"

/* Ids below it are special in many vocabularies (unknown, begin, end, padding). */
enum { FIRST_PLAIN_ID = 3 };
#define MOST_SECONDS 9e9

/* ---- lengths ---- */

int load_lengths_parse(const char *text, const char *option, struct load_lengths *out,
                       struct err *e)
{
    static const char word[] = "lognormal:";
    struct load_lengths l = {.lognormal = strncmp(text, word, sizeof word - 1) == 0};
    const char *numbers = text + (l.lognormal ? sizeof word - 1 : 0);
    char *end;
    unsigned long least = strtoul(numbers, &end, 10), most = least;
    if (end != numbers && strncmp(end, "..", 2) == 0) {
        const char *second = end + 2;
        most = strtoul(second, &end, 10);
        end = end == second ? "?" : end;
    }
    if (end == numbers || *end || least < 1 || most < least || most > LOAD_MAX_TOKENS)
        return err_set(e, HP_EUSAGE,
                       "--%s: \"%s\" is no length: write N, A..B or lognormal:A..B, tokens from 1 "
                       "to %d",
                       option, text, LOAD_MAX_TOKENS);
    l.least = (uint32_t)least;
    l.most = (uint32_t)most;
    *out = l;
    return 0;
}

static double normal_draw(uint64_t *random)
{
    double u = 1 - random_unit(random), v = random_unit(random);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static uint32_t length_draw(const struct load_lengths *l, uint64_t *random)
{
    if (l->lognormal) {
        double low = log(l->least), high = log(l->most), z = normal_draw(random);
        double tokens = exp((low + high) / 2 + z * (high - low) / (2 * 1.959964));
        return tokens <= l->least ? l->least : tokens >= l->most ? l->most : (uint32_t)tokens;
    }
    return l->least + (uint32_t)(random_unit(random) * ((double)l->most - l->least + 1));
}

/* ---- requests ---- */

static int request_add(struct load_plan *p, const struct load_request *r, struct err *e)
{
    if (p->n >= LOAD_MAX_REQUESTS)
        return err_set(e, HP_ELIMIT, "more than %d requests: a lower --rate, or fewer --seconds",
                       LOAD_MAX_REQUESTS);
    struct load_request own = *r;
    own.prompt = p->n;
    return vector_push(p->requests, p->n, p->room, own) ? 0 : err_no_memory(e, "a request");
}

static int arrivals_draw(const struct load_options *o, struct load_plan *p, struct err *e)
{
    struct arrivals *a = malloc(sizeof *a);
    uint64_t random = o->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    struct arrival next;
    int rc = a ? 0 : err_no_memory(e, "arrivals");
    if (rc == 0)
        arrivals_init(a, o->kind, &o->rate_per_s, 1, o->seconds, o->seed);
    while (rc == 0 && arrivals_next(a, &next, e) > 0) {
        struct load_request r = {.at_s = (double)next.at_ns * 1e-9};
        r.prompt_tokens = length_draw(&o->prompt, &random);
        r.answer_tokens = length_draw(&o->answer, &random);
        rc = request_add(p, &r, e);
    }
    free(a);
    p->seconds = o->seconds;
    return rc;
}

/* ---- files ---- */

struct load_file {
    const struct load_options *o;
    FILE *stream;
    long line;
    double last_s;
    uint64_t random;
};

static int line_refuse(const struct load_file *f, struct err *e, const char *what)
{
    return err_set(e, HP_EPARSE, "%s: line %ld: %s", f->o->file, f->line, what);
}

static bool field_tokens(const char *field, uint32_t *out)
{
    char *end;
    unsigned long n = strtoul(field, &end, 10);
    *out = (uint32_t)n;
    return end != field && *end == '\0' && n >= 1 && n <= LOAD_MAX_TOKENS;
}

/* Cuts a line at its commas and takes the blanks off; how many fields it has, at most `most`
 * + 1. */
static int line_split(char *text, char **fields, int most)
{
    int n = 0;
    for (char *at = text; at && n <= most; n++) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        at += strspn(at, " \t");
        at[strcspn(at, " \t\r\n")] = '\0';
        if (n < most)
            fields[n] = at;
        at = comma ? comma + 1 : NULL;
    }
    return n;
}

/* 1: a request of this deployment; 0: none (a header, an empty line, another's). */
static int line_read(struct load_file *f, char *text, struct load_request *r, struct err *e)
{
    char *fields[4], *end;
    int n = line_split(text, fields, 4);
    if (n == 1 && !*fields[0])
        return 0;
    r->at_s = strtod(fields[0], &end);
    if (end == fields[0] || *end || !isfinite(r->at_s))
        return f->line == 1 ? 0 : line_refuse(f, e, "begins with no number of seconds");
    if (r->at_s < 0)
        return line_refuse(f, e, "is before the start: a time is 0 or more");
    if (r->at_s < f->last_s)
        return line_refuse(f, e, "is earlier than the line before it: sort the file by time");
    if (n > 4)
        return line_refuse(f, e, "has more fields than seconds,deployment,prompt,answer");
    f->last_s = r->at_s;
    r->prompt_tokens = length_draw(&f->o->prompt, &f->random);
    r->answer_tokens = length_draw(&f->o->answer, &f->random);
    if (n >= 3 && !(field_tokens(fields[n - 2], &r->prompt_tokens) &&
                    field_tokens(fields[n - 1], &r->answer_tokens)))
        return line_refuse(f, e,
                           "ends with no two numbers of tokens, of the prompt and the answer");
    bool named = (n == 2 || n == 4) && *fields[1];
    return !named || strcmp(fields[1], f->o->deployment) == 0;
}

static int lines_read(struct load_file *f, struct load_plan *p, struct err *e)
{
    static const char mark[] = "\xef\xbb\xbf"; /* before the text of some spreadsheets */
    char text[512];
    int rc = 0;
    while (rc == 0 && fgets(text, sizeof text, f->stream)) {
        struct load_request r;
        f->line++;
        if (!strchr(text, '\n') && !feof(f->stream)) /* a zero byte hides the line's end, too */
            return line_refuse(f, e, "is too long, or no text");
        bool marked = f->line == 1 && strncmp(text, mark, sizeof mark - 1) == 0;
        int mine = line_read(f, text + (marked ? sizeof mark - 1 : 0), &r, e);
        if (mine < 0)
            return mine;
        if (mine && r.at_s >= f->o->seconds)
            break;
        rc = mine ? request_add(p, &r, e) : 0;
    }
    return rc == 0 && ferror(f->stream) ? err_set(e, HP_EIO, "%s: cannot be read", f->o->file) : rc;
}

/* Requests at the file's own times, or stretched to the rate that was asked for. */
static int plan_stretch(const struct load_options *o, struct load_plan *p, struct err *e)
{
    double span = p->requests[p->n - 1].at_s - p->requests[0].at_s;
    double pace = span > 0 ? (double)p->n / span : 0;
    double stretch = o->rate_per_s > 0 ? pace / o->rate_per_s : 0;
    for (size_t i = 0; stretch > 0 && isfinite(stretch) && i < p->n; i++)
        p->requests[i].at_s *= stretch;
    p->seconds = p->requests[p->n - 1].at_s;
    return p->seconds <= MOST_SECONDS
               ? 0
               : err_set(e, HP_EINVAL, "%s: its last request comes too far in the future", o->file);
}

static int file_read(const struct load_options *o, struct load_plan *p, struct err *e)
{
    struct load_file f = {
        .o = o, .stream = fopen(o->file, "r"), .random = o->seed * UINT64_C(0x9E3779B97F4A7C15)};
    if (!f.stream) {
        int rc = err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "--arrivals: %s: %s", o->file,
                         strerror(errno));
        err_hint(e, "it is poisson, uniform, bursty or a CSV file");
        return rc;
    }
    int rc = lines_read(&f, p, e);
    fclose(f.stream);
    if (rc == 0 && p->n == 0) {
        rc = err_set(e, HP_EINVAL, "%s: has no request for \"%s\"", o->file, o->deployment);
        err_hint(e, "a line is SECONDS, SECONDS,DEPLOYMENT, SECONDS,PROMPT,ANSWER or "
                    "SECONDS,DEPLOYMENT,PROMPT,ANSWER");
    }
    return rc < 0 ? rc : plan_stretch(o, p, e);
}

int load_plan_make(const struct load_options *o, struct load_plan *out, struct err *e)
{
    *out = (struct load_plan){0};
    int rc = o->kind == ARRIVALS_TRACE ? file_read(o, out, e) : arrivals_draw(o, out, e);
    if (rc == 0 && out->n == 0) {
        rc = err_set(
            e, HP_EINVAL, "%s arrivals at %g a second give none in %g s as --seed %llu draws them",
            arrivals_words[o->kind], o->rate_per_s, o->seconds, (unsigned long long)o->seed);
        err_hint(e, "more --seconds, a higher --rate, or --arrivals uniform");
    }
    if (rc < 0)
        load_plan_free(out);
    return rc;
}

int load_plan_repeat(const struct load_options *o, size_t n_prompts, size_t n,
                     struct load_plan *out, struct err *e)
{
    uint64_t random = o->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    int rc = 0;
    *out = (struct load_plan){.seconds = o->seconds};
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct load_request r = {0};
        if (i < n_prompts) {
            r.prompt_tokens = length_draw(&o->prompt, &random);
            r.answer_tokens = length_draw(&o->answer, &random);
        } else {
            r = out->requests[i % n_prompts];
        }
        rc = request_add(out, &r, e);
        if (rc == 0)
            out->requests[i].prompt = i % n_prompts;
    }
    if (rc < 0)
        load_plan_free(out);
    return rc;
}

void load_plan_free(struct load_plan *p)
{
    free(p->requests);
    *p = (struct load_plan){0};
}

void load_prompt_write(const struct load_plan *p, size_t index, uint64_t seed, uint32_t common,
                       uint32_t vocabulary, struct buffer *out)
{
    uint32_t first = vocabulary > FIRST_PLAIN_ID ? FIRST_PLAIN_ID : 0;
    uint64_t shared = seed,
             own = seed ^ ((uint64_t)p->requests[index].prompt + 1) * UINT64_C(0xD1B54A32D192ED03);
    for (uint32_t t = 0; t < p->requests[index].prompt_tokens; t++) {
        double u = random_unit(t < common ? &shared : &own);
        buffer_printf(out, "%c%u", t ? ',' : '[', first + (uint32_t)(u * (vocabulary - first)));
    }
    buffer_append(out, "]", 1);
}
