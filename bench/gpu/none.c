/* What bench/gpu.sh leaves out: its programs have no cpu backend, and hold no answer to a grammar.
 */
#include "agent/backend/cpu/cpu.h"
#include "model/grammar/automaton.h"

const struct backend cpu_backend = {.name = "cpu"};

bool cpu_is_usable(void)
{
    return false;
}

int matcher_create(struct automaton *a, uint64_t most_tokens, const uint32_t *ends, size_t n_ends,
                   struct matcher **out, struct err *e)
{
    (void)a, (void)most_tokens, (void)ends, (void)n_ends, (void)out;
    return err_set(e, HP_EUNSUPPORTED, "this program has no grammars");
}

/* Nobody has one. */
void matcher_destroy(struct matcher **m)
{
    *m = NULL;
}

const uint64_t *matcher_mask(struct matcher *m)
{
    (void)m;
    return NULL;
}

bool matcher_fits(struct matcher *m, uint32_t token)
{
    (void)m, (void)token;
    return false;
}

uint32_t matcher_shortest(struct matcher *m)
{
    (void)m;
    return 0;
}

void matcher_accept(struct matcher *m, uint32_t token)
{
    (void)m, (void)token;
}

int matcher_error(const struct matcher *m, struct err *e)
{
    (void)m;
    return err_set(e, HP_EUNSUPPORTED, "this program has no grammars");
}

bool matcher_lacks(struct matcher *m)
{
    (void)m;
    return false;
}

bool matcher_look_ahead(struct matcher *m)
{
    (void)m;
    return false;
}
