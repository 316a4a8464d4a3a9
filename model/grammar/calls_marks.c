#include "model/grammar/calls_marks.h"

#include <string.h>

#include "model/grammar/calls.h"
#include "model/grammar/token_tree.h"

const struct expression *grammar_mark(struct expressions *x, const char *mark)
{
    static const char special[] = {(char)TOKEN_SPECIAL_BYTE};
    return EXPRESSION_SEQUENCE_OF(
        x, EXPRESSION_CHOICE_OF(x, expression_word(x, ""), expression_text(x, special, 1)),
        expression_word(x, mark));
}

void grammar_bytes_add(struct expressions *x, struct expression_list *l, const uint32_t to[256],
                       uint32_t one, const struct expression *next)
{
    struct expression_list bytes = {0};
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        if (to[byte] == one)
            expression_list_add(x, &bytes, expression_text(x, &c, 1));
    }
    if (bytes.count)
        expression_list_add(
            x, l, EXPRESSION_SEQUENCE_OF(x, expression_choice(x, bytes.items, bytes.count), next));
}

/* The automaton of Knuth, Morris and Pratt, a rule a state. */
const struct expression *grammar_until_mark(struct expressions *x, const char *mark,
                                            const struct expression *found, bool may_end)
{
    size_t n = strlen(mark), back[GRAMMAR_MAX_MARK_BYTES + 1] = {0};
    uint32_t first = (uint32_t)x->n_rules;
    if (n > GRAMMAR_MAX_MARK_BYTES)
        return expression_fail(x, HP_ELIMIT, "a mark of calls has more than %d bytes",
                               GRAMMAR_MAX_MARK_BYTES);
    for (size_t i = 0; i < n; i++)
        expression_rule_add(x, "text");
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k && mark[i] != mark[k])
            k = back[k - 1];
        k += mark[i] == mark[k];
        back[i] = k;
    }
    for (size_t state = 0; state < n; state++) {
        struct expression_list l = {0};
        if (may_end)
            expression_list_add(x, &l, expression_word(x, ""));
        uint32_t to[256];
        for (int byte = 0; byte < 256; byte++) {
            size_t k = state;
            while (k && mark[k] != (char)byte)
                k = back[k - 1];
            to[byte] = (uint32_t)k + (mark[k] == (char)byte);
        }
        for (uint32_t k = 0; k <= state + 1; k++)
            grammar_bytes_add(x, &l, to, k, k == n ? found : expression_rule(x, first + k));
        expression_rule_set(x, first + (uint32_t)state, expression_choice(x, l.items, l.count));
    }
    return expression_rule(x, first);
}
