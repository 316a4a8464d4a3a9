#include "hpctl/command_complete.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "hpctl/command_help.h"

enum { TYPED_BYTES = 256 };

/* A verb's path or an option, and which things of a cluster its arguments or values name. */
struct named_by {
    const char *by;
    enum complete_names what;
};

/* Verbs; a row for each kind. */
static const struct named_by named[] = {
    {"describe", COMPLETE_DEPLOYMENTS},  {"describe", COMPLETE_POOL_MODELS},
    {"load", COMPLETE_DEPLOYMENTS},      {"load", COMPLETE_POOL_MODELS},
    {"undeploy", COMPLETE_DEPLOYMENTS},  {"run", COMPLETE_DEPLOYMENTS},
    {"chat", COMPLETE_DEPLOYMENTS},      {"chaos", COMPLETE_DEPLOYMENTS},
    {"rebalance", COMPLETE_DEPLOYMENTS}, {"weights rm", COMPLETE_WEIGHTS},
    {"profile rm", COMPLETE_PROFILES},   {"node describe", COMPLETE_AGENTS},
    {"node drain", COMPLETE_AGENTS},     {"node undrain", COMPLETE_AGENTS},
    {"node rm", COMPLETE_AGENTS},        {"logs", COMPLETE_AGENTS},
    {"key edit", COMPLETE_KEYS},         {"key rm", COMPLETE_KEYS},
    {"context use", COMPLETE_CONTEXTS},  {"context export", COMPLETE_CONTEXTS},
    {"context rm", COMPLETE_CONTEXTS}};

/* Options. */
static const struct named_by valued[] = {
    {"context", COMPLETE_CONTEXTS},    {"agents", COMPLETE_AGENTS},     {"agent", COMPLETE_AGENTS},
    {"nodes", COMPLETE_AGENTS},        {"prefill", COMPLETE_AGENTS},    {"decode", COMPLETE_AGENTS},
    {"replicate-to", COMPLETE_AGENTS}, {"models", COMPLETE_DEPLOYMENTS}};

/* ---- what was typed ---- */

/* The words before the last one, up to the first option, with blanks between and one behind. */
static void words_join(const char *const *words, int n, char out[TYPED_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i + 1 < n && words[i][0] != '-' && used < TYPED_BYTES; i++)
        used += (size_t)snprintf(out + used, TYPED_BYTES - used, "%s ", words[i]);
}

/* The verb of most words that `typed` begins with. */
static const struct command *verb_find(const struct command *const *tables, const char *typed)
{
    const struct command *best = NULL;
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            size_t length = strlen(c->path);
            if (strncmp(c->path, typed, length) == 0 && typed[length] == ' ' &&
                (!best || length > strlen(best->path)))
                best = c;
        }
    return best;
}

static const struct command_option *option_find(const struct command_option *options,
                                                const char *word)
{
    for (; options && options->name; options++)
        if ((word[0] == '-' && word[1] == '-' && strcmp(word + 2, options->name) == 0) ||
            (word[0] == '-' && options->letter && word[1] == options->letter && !word[2]))
            return options;
    return NULL;
}

/* ---- what may follow ---- */

/* The next word of each verb that goes on from `typed`, once each: verbs of one group need not
 * stand beside each other. */
static void verbs_offer(const struct command *const *tables, const char *typed, const char *begun,
                        struct buffer *out)
{
    size_t from = strlen(typed), start = out->size;
    for (const struct command *const *t = tables; *t; t++)
        for (const struct command *c = *t; c->path; c++) {
            char line[TYPED_BYTES];
            if (strncmp(c->path, typed, from) != 0)
                continue;
            size_t n = strcspn(c->path + from, " ");
            snprintf(line, sizeof line, "\n%.*s\n", (int)n, c->path + from);
            bool begins = strncmp(c->path + from, begun, strlen(begun)) == 0,
                 there = strstr(buffer_cstr(out), line) != NULL ||
                         strncmp(buffer_cstr(out) + start, line + 1, n + 1) == 0;
            if (begins && !there)
                buffer_append(out, line + 1, n + 1);
        }
}

static void options_offer(const struct command_option *options, const char *begun,
                          struct buffer *out)
{
    char name[64];
    for (; options && options->name; options++) {
        snprintf(name, sizeof name, "--%s", options->name);
        if (strncmp(name, begun, strlen(begun)) == 0)
            buffer_printf(out, "%s\n", name);
    }
}

/* "auto|f16|q8_0" says its words; capitals stand for something. */
static void words_of_value(const char *value, struct buffer *out)
{
    bool any = strchr(value, '|') != NULL;
    for (const char *at = value; any && *at; at += strcspn(at, "|"), at += *at == '|') {
        size_t n = strcspn(at, "|");
        if (!isupper((unsigned char)*at))
            buffer_printf(out, "%.*s\n", (int)n, at);
    }
}

/* "FILE", "DIR", "C.json": all else has no file of that name. */
static bool value_is_file(const char *value)
{
    static const char *const marks[] = {"FILE", "DIR", ".json", ".npz"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strstr(value, marks[i]))
            return true;
    return false;
}

/* Whether a word is one of those of a list ("a0,a1,"). */
static bool list_has(const char *list, const char *word, size_t n)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == n && strncmp(list, word, n) == 0)
            return true;
    return false;
}

/* Names; of a list ("a0,") those that may follow, behind what stands there. */
static void names_offer(complete_names_fn names, enum complete_names what, const char *begun,
                        struct buffer *out)
{
    struct buffer all = {0};
    const char *comma = strrchr(begun, ',');
    if (!comma) {
        names(what, out);
        return;
    }
    names(what, &all);
    for (const char *at = buffer_cstr(&all), *end; *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        if (!list_has(begun, at, (size_t)(end - at)))
            buffer_printf(out, "%.*s%.*s\n", (int)(comma + 1 - begun), begun, (int)(end - at), at);
    }
    buffer_free(&all);
}

static void value_offer(const struct command_option *option, const char *begun,
                        complete_names_fn names, struct buffer *out)
{
    words_of_value(option->value, out);
    for (size_t i = 0; i < sizeof valued / sizeof *valued; i++)
        if (strcmp(option->name, valued[i].by) == 0)
            names_offer(names, valued[i].what, begun, out);
    if (value_is_file(option->value))
        buffer_printf(out, COMPLETE_FILES "\n");
}

static void arguments_offer(const struct command *c, complete_names_fn names, struct buffer *out)
{
    const char *arguments = c->arguments ? c->arguments : "";
    bool is_named = false;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(named[i].by, c->path) == 0) {
            is_named = true;
            names(named[i].what, out);
        }
    if (*arguments && (!is_named || strstr(arguments, "FILE")))
        buffer_printf(out, COMPLETE_FILES "\n");
}

void command_complete(const struct command *const *tables, const char *const *words, int n,
                      complete_names_fn names, struct buffer *out)
{
    char typed[TYPED_BYTES];
    if (n < 1)
        return;
    words_join(words, n, typed);
    const char *begun = words[n - 1];
    const struct command *c = verb_find(tables, typed);
    const struct command_option *before = NULL;
    if (c && n > 1) {
        before = option_find(c->options, words[n - 2]);
        before = before ? before : option_find(command_common_options, words[n - 2]);
    }
    if (before && before->value) {
        value_offer(before, begun, names, out);
    } else if (c && begun[0] == '-') {
        options_offer(c->options, begun, out);
        options_offer(command_common_options, begun, out);
    } else {
        verbs_offer(tables, typed, begun, out);
        if (c)
            arguments_offer(c, names, out);
    }
}

/* ---- shells ---- */

static const struct {
    const char *shell, *script;
} scripts[] = {
    {"bash", "# bash completion for hpctl; made by `hpctl completion bash`\n"
             "_hpctl() {\n"
             "    local word=${COMP_WORDS[COMP_CWORD]} told\n"
             "    told=$(hpctl completion words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
             "    COMPREPLY=($(compgen -W \"${told//:files/}\" -- \"$word\"))\n"
             "    case $told in *:files*) COMPREPLY+=($(compgen -f -- \"$word\")); compopt -o "
             "filenames 2>/dev/null ;; esac\n"
             "}\n"
             "complete -F _hpctl hpctl\n"},
    {"zsh",
     "#compdef hpctl\n"
     "# zsh completion for hpctl; made by `hpctl completion zsh`\n"
     "_hpctl() {\n"
     "    local -a told\n"
     "    told=(${(f)\"$(hpctl completion words -- \"${(@)words[2,CURRENT]}\" "
     "2>/dev/null)\"})\n"
     "    (( ${told[(I):files]} )) && _files\n"
     "    told=(${told:#:files})\n"
     "    compadd -a told\n"
     "}\n"
     "if [ \"$funcstack[1]\" = _hpctl ]; then _hpctl \"$@\"; else compdef _hpctl hpctl; fi\n"},
    {"fish", "# fish completion for hpctl; made by `hpctl completion fish`\n"
             "function __hpctl_words\n"
             "    set -l typed (commandline -opc) (commandline -ct)\n"
             "    for word in (hpctl completion words -- $typed[2..-1] 2>/dev/null)\n"
             "        if test \"$word\" = :files\n"
             "            __fish_complete_path (commandline -ct)\n"
             "        else\n"
             "            echo $word\n"
             "        end\n"
             "    end\n"
             "end\n"
             "complete -c hpctl -f -a '(__hpctl_words)'\n"}};

const char *command_complete_script(const char *shell)
{
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].shell, shell) == 0)
            return scripts[i].script;
    return NULL;
}
