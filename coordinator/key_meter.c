#include "coordinator/key_meter.h"

#include <math.h>

static const double NS = 1e9, MINUTE_S = 60;

/* ---- rates ---- */

static double rate_used(struct key_rate *r, uint64_t per_minute, uint64_t now_ns)
{
    double passed_s = now_ns > r->at_ns ? (double)(now_ns - r->at_ns) / NS : 0;
    r->used = fmax(0, r->used - passed_s * (double)per_minute / MINUTE_S);
    r->at_ns = now_ns;
    return r->used;
}

/* Until so many more fit; 0: they do. */
static double rate_wait_s(struct key_rate *r, uint64_t per_minute, uint64_t now_ns, uint64_t more)
{
    double over =
        per_minute ? rate_used(r, per_minute, now_ns) + (double)more - (double)per_minute : 0;
    return over > 1e-6 ? over * MINUTE_S / (double)per_minute : 0;
}

/* ---- the day ---- */

static void day_advance(struct key_meter *m, uint64_t now_ns)
{
    if (m->day_runs && (int64_t)now_ns - m->day_from_ns >= (int64_t)KEY_DAY_S * 1000000000) {
        m->day_runs = false;
        m->day_tokens = 0;
    }
}

static double day_left_s(const struct key_meter *m, uint64_t now_ns)
{
    return m->day_runs ? KEY_DAY_S - (double)((int64_t)now_ns - m->day_from_ns) / NS : 0;
}

/* ---- budgets ---- */

static uint64_t budget_left(uint64_t limit, uint64_t used)
{
    return !limit ? UINT64_MAX : used < limit ? limit - used : 0;
}

static uint64_t tokens_ever(const struct key_meter *m)
{
    return m->prompt_tokens + m->output_tokens;
}

uint64_t key_meter_left(struct key_meter *m, const struct key_limits *l, uint64_t now_ns)
{
    day_advance(m, now_ns);
    uint64_t day = budget_left(l->tokens_per_day, m->day_tokens),
             total = budget_left(l->tokens_total, tokens_ever(m));
    return day < total ? day : total;
}

static int budgets_check(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                         uint64_t tokens, double *wait_s, struct err *e)
{
    uint64_t total = budget_left(l->tokens_total, tokens_ever(m));
    if (key_meter_left(m, l, now_ns) >= tokens)
        return 0;
    *wait_s = total < tokens ? KEY_DAY_S : day_left_s(m, now_ns);
    if (total < tokens)
        return err_set(e, HP_EQUOTA,
                       "this API key may use %llu tokens, of which %llu are left; `hpctl key edit` "
                       "gives it more",
                       (unsigned long long)l->tokens_total, (unsigned long long)total);
    if (tokens > l->tokens_per_day)
        return err_set(e, HP_ELIMIT, "this has %llu tokens; this API key may use %llu a day",
                       (unsigned long long)tokens, (unsigned long long)l->tokens_per_day);
    return err_set(
        e, HP_EQUOTA, "this API key may use %llu tokens a day, of which %llu are left for %.0f s",
        (unsigned long long)l->tokens_per_day,
        (unsigned long long)budget_left(l->tokens_per_day, m->day_tokens), ceil(*wait_s));
}

static int rates_check(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                       uint64_t requests, uint64_t tokens, double *wait_s, struct err *e)
{
    if (l->tokens_per_minute && tokens > l->tokens_per_minute)
        return err_set(e, HP_ELIMIT, "this has %llu tokens; this API key may use %llu a minute",
                       (unsigned long long)tokens, (unsigned long long)l->tokens_per_minute);
    *wait_s = rate_wait_s(&m->requests, l->requests_per_minute, now_ns, requests);
    if (requests && *wait_s > 0)
        return err_set(e, HP_ERATE,
                       "this API key may ask %llu times a minute: the next time in %.3g s",
                       (unsigned long long)l->requests_per_minute, *wait_s);
    *wait_s = rate_wait_s(&m->tokens, l->tokens_per_minute, now_ns, tokens);
    if (tokens && *wait_s > 0)
        return err_set(
            e, HP_ERATE, "this API key may use %llu tokens a minute: it has %llu more in %.3g s",
            (unsigned long long)l->tokens_per_minute, (unsigned long long)tokens, *wait_s);
    *wait_s = 0;
    return 0;
}

int key_meter_check(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                    uint64_t requests, uint64_t tokens, double *wait_s, struct err *e)
{
    int rc = rates_check(m, l, now_ns, requests, tokens, wait_s, e);
    if (rc == 0)
        rc = budgets_check(m, l, now_ns, tokens, wait_s, e);
    return rc;
}

void key_meter_request(struct key_meter *m, const struct key_limits *l, uint64_t now_ns)
{
    rate_used(&m->requests, l->requests_per_minute, now_ns);
    m->requests.used += l->requests_per_minute ? 1 : 0;
    m->n_requests++;
}

void key_meter_tokens(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                      uint64_t prompt, uint64_t output)
{
    rate_used(&m->tokens, l->tokens_per_minute, now_ns);
    m->tokens.used += l->tokens_per_minute ? (double)(prompt + output) : 0;
    day_advance(m, now_ns);
    if (!m->day_runs) {
        m->day_runs = true;
        m->day_from_ns = (int64_t)now_ns;
    }
    m->day_tokens += prompt + output;
    m->prompt_tokens += prompt;
    m->output_tokens += output;
}

void key_meter_return(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                      uint64_t prompt)
{
    uint64_t known = prompt < m->prompt_tokens ? prompt : m->prompt_tokens;
    m->tokens.used = fmax(0, rate_used(&m->tokens, l->tokens_per_minute, now_ns) - (double)known);
    day_advance(m, now_ns);
    m->day_tokens -= known < m->day_tokens ? known : m->day_tokens;
    m->prompt_tokens -= known;
}

/* ---- how it stands ---- */

static struct request_limit rate_view(struct key_rate *r, uint64_t per_minute, uint64_t now_ns)
{
    double used = rate_used(r, per_minute, now_ns), left = (double)per_minute - used;
    return (struct request_limit){.limit = per_minute,
                                  .remaining = left > 0 ? (uint64_t)(left + 1e-6) : 0,
                                  .reset_s = per_minute ? used * MINUTE_S / (double)per_minute : 0};
}

static void least_take(struct request_limit *least, struct request_limit other)
{
    if (other.limit && (!least->limit || other.remaining < least->remaining))
        *least = other;
}

void key_meter_view(struct key_meter *m, const struct key_limits *l, uint64_t now_ns,
                    struct request_limits *out)
{
    day_advance(m, now_ns);
    out->requests = rate_view(&m->requests, l->requests_per_minute, now_ns);
    out->tokens = rate_view(&m->tokens, l->tokens_per_minute, now_ns);
    least_take(&out->tokens, (struct request_limit){l->tokens_per_day,
                                                    budget_left(l->tokens_per_day, m->day_tokens),
                                                    day_left_s(m, now_ns)});
    least_take(
        &out->tokens,
        (struct request_limit){l->tokens_total, budget_left(l->tokens_total, tokens_ever(m)), -1});
}

/* ---- the record ---- */

json_t *key_meter_json(struct key_meter *m, uint64_t now_ns, uint64_t unix_s)
{
    day_advance(m, now_ns);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "requests", (json_int_t)m->n_requests,
                     "refused", (json_int_t)m->n_refused, "prompt_tokens",
                     (json_int_t)m->prompt_tokens, "output_tokens", (json_int_t)m->output_tokens,
                     "day_tokens", (json_int_t)m->day_tokens, "day_left_s", day_left_s(m, now_ns),
                     "at_s", (json_int_t)unix_s);
}

static int count_read(const json_t *record, const char *name, uint64_t *out, struct err *e)
{
    const json_t *value = json_object_get(record, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return err_set(e, HP_EPARSE, "the use of an API key has no count \"%s\"", name);
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

int key_meter_restore(struct key_meter *m, const json_t *record, uint64_t now_ns, uint64_t unix_s,
                      struct err *e)
{
    struct key_meter next = {0};
    uint64_t at_s = 0;
    const struct {
        const char *name;
        uint64_t *out;
    } counts[] = {{"requests", &next.n_requests},         {"refused", &next.n_refused},
                  {"prompt_tokens", &next.prompt_tokens}, {"output_tokens", &next.output_tokens},
                  {"day_tokens", &next.day_tokens},       {"at_s", &at_s}};
    int rc = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && rc == 0; i++)
        rc = count_read(record, counts[i].name, counts[i].out, e);
    if (rc < 0)
        return rc;
    double left_s = json_number_value(json_object_get(record, "day_left_s"));
    left_s = left_s > KEY_DAY_S ? KEY_DAY_S : left_s;
    if (left_s > 0) {
        double passed_s = KEY_DAY_S - left_s + (unix_s > at_s ? (double)(unix_s - at_s) : 0);
        passed_s = passed_s < KEY_DAY_S ? passed_s : KEY_DAY_S;
        next.day_runs = true;
        next.day_from_ns = (int64_t)now_ns - (int64_t)(passed_s * NS);
    } else {
        next.day_tokens = 0;
    }
    next.requests.at_ns = next.tokens.at_ns = now_ns;
    *m = next;
    return 0;
}
