/* What a shell is told at Tab. */
#include <stdio.h>
#include <string.h>

#include "hpctl/command_complete.h"
#include "hpctl/verbs.h"
#include "tests/test.h"

static void names_say(enum complete_names what, struct buffer *out)
{
    static const char *const words[] = {"none",     "deployments", "agents",  "keys",
                                        "contexts", "pool-models", "weights", "profiles"};
    buffer_printf(out, "<%s>\n", words[what]);
}

/* What `line` (words with a blank between, "" behind the last blank) may become, with blanks
 * between. */
static const char *completed(const char *line)
{
    static char all[4096];
    char copy[256];
    const char *words[16];
    int n = 0;
    struct buffer out = {0};
    snprintf(copy, sizeof copy, "%s", line);
    for (char *at = copy; at; n++) {
        words[n] = at;
        if ((at = strchr(at, ' ')) != NULL)
            *at++ = '\0';
    }
    command_complete(command_tables, words, n, names_say, &out);
    snprintf(all, sizeof all, " %s", buffer_cstr(&out));
    buffer_free(&out);
    for (char *c = all; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return all;
}

TEST(words_of_a_line_become_what_the_table_knows)
{
    static const struct {
        const char *line, *is;
    } cases[] = {
        {"des", " describe "},
        {"nod", " node "}, /* once, though many verbs begin so */
        {"node t", " token "},
        {"node token ", " create ls "},
        {"nosuch ", " "},
        {"describe ", " <deployments> <pool-models> "},
        {"describe d", " <deployments> <pool-models> "},
        {"chaos ", " <deployments> "},
        {"weights rm ", " <weights> "},
        {"profile rm ", " <profiles> "},
        {"run ", " <deployments> :files "},
        {"node drain ", " <agents> "},
        {"key rm ", " <keys> "},
        {"context use ", " <contexts> "},
        {"deploy ", " :files "},
        {"bench mod", " :files "},
        {"ps ", " "},
        {"deploy m.gguf --kv ", " auto f16 q8_0 f32 "},
        {"deploy m.gguf --agents ", " <agents> "},
        {"deploy m.gguf --agents a0,", " a0,<agents> "},
        {"deploy m.gguf --agents a0,a1,a", " a0,a1,<agents> "},
        {"deploy m.gguf --agents a0,<agents>,", " "}, /* it is named already */
        {"deploy m.gguf --prefill ", " auto <agents> "},
        {"deploy m.gguf --max-context ", " "}, /* a number is no file */
        {"deploy m.gguf --plan ", " :files "},
        {"local start --agent ", " <agents> "},
        {"local up --dir ", " :files "},
        {"load demo --arrivals ", " poisson uniform bursty :files "},
        {"key create k --models ", " all <deployments> "},
        {"ps --context ", " <contexts> "},
        {"ps -o ", " json :files "},
        {"ps --conte", " --context "},
        {"plan pipeline --micro", " --micro-batches "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(completed(cases[i].line), cases[i].is) != 0)
            fail_msg("[%s] became [%s] and not [%s]", cases[i].line, completed(cases[i].line),
                     cases[i].is);
}

TEST(every_verb_is_reached_word_by_word_and_every_option_offered)
{
    char line[256];
    for (const struct command *const *t = command_tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            char word[64];
            for (const char *at = c->path; *at; at += strcspn(at, " "), at += *at == ' ') {
                snprintf(line, sizeof line, "%.*s", (int)(at - c->path), c->path);
                snprintf(word, sizeof word, " %.*s ", (int)strcspn(at, " "), at);
                if (!strstr(completed(line), word))
                    fail_msg("behind [%s] there is no [%s]", line, word);
            }
            for (const struct command_option *o = c->options; o && o->name; o++) {
                snprintf(line, sizeof line, "%s --", c->path);
                snprintf(word, sizeof word, " --%s ", o->name);
                if (!strstr(completed(line), word))
                    fail_msg("behind [%s] there is no [%s]", line, word);
            }
        }
}

TEST(there_are_scripts_for_three_shells)
{
    assert_non_null(command_complete_script("bash"));
    assert_non_null(command_complete_script("zsh"));
    assert_non_null(command_complete_script("fish"));
    assert_null(command_complete_script("words"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_a_line_become_what_the_table_knows),
        cmocka_unit_test(every_verb_is_reached_word_by_word_and_every_option_offered),
        cmocka_unit_test(there_are_scripts_for_three_shells),
    };
    return cmocka_run_group_tests_name("command_complete", tests, NULL, NULL);
}
