/* `hpctl completion|man`: what is made of the command table itself. */
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "hpctl/client.h"
#include "hpctl/command_complete.h"
#include "hpctl/command_man.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"

enum { NAMES_PATIENCE_MS = 700 };

/* Names that a list of the coordinator has, as an answer or as a member of one; none where it does
 * not answer at once. */
static void names_ask(const char *verb, const char *member, struct buffer *out)
{
    struct context where;
    struct client *client;
    struct err ignored = {0};
    json_t *list = NULL, *one;
    size_t i;
    if (context_load(NULL, &where, &ignored) < 0 ||
        client_open_at(&where, NAMES_PATIENCE_MS, &client, &ignored) < 0)
        return;
    client_get(client, verb, NULL, &list, &ignored);
    client_close(&client);
    json_array_foreach(member ? json_object_get(list, member) : list, i, one)
    {
        buffer_printf(out, "%s\n", string_member(one, "name"));
    }
    json_decref(list);
}

static void names_offer(enum complete_names what, struct buffer *out)
{
    static const struct {
        const char *verb, *member;
    } lists[] = {[COMPLETE_DEPLOYMENTS] = {"deployment.ls", NULL},
                 [COMPLETE_AGENTS] = {"node.ls", NULL},
                 [COMPLETE_KEYS] = {"key.ls", NULL},
                 [COMPLETE_POOL_MODELS] = {"pools", "models"},
                 [COMPLETE_WEIGHTS] = {"weights.ls", NULL},
                 [COMPLETE_PROFILES] = {"profile.ls", NULL}};
    json_t *contexts, *name;
    size_t i;
    if (what != COMPLETE_CONTEXTS) {
        names_ask(lists[what].verb, lists[what].member, out);
        return;
    }
    contexts = context_list();
    json_array_foreach(contexts, i, name) buffer_printf(out, "%s\n", json_string_value(name));
    json_decref(contexts);
}

static int run_completion(struct invocation *in, struct err *e)
{
    const char *shell = in->n_arguments ? in->arguments[0] : "bash",
               *script = command_complete_script(shell);
    struct buffer out = {0};
    bool words = strcmp(shell, "words") == 0;
    if (!script && !words)
        return err_set(e, HP_EUNSUPPORTED,
                       "there is no completion for \"%s\"; there is for bash, zsh and fish", shell);
    if (words)
        command_complete(in->tables, in->arguments + 1, in->n_arguments - 1, names_offer, &out);
    else
        buffer_printf(&out, "%s", script);
    int rc = out.failed ? err_no_memory(e, "the completion") : 0;
    if (rc == 0 && in->json)
        rc = invocation_print_json(
            in, json_pack("{s:s, s:s%}", "shell", shell, "script", buffer_cstr(&out), out.size), e);
    else if (rc == 0 && in->output)
        rc = fs_buffer_save(in->output, &out, e);
    else if (rc == 0)
        fputs(buffer_cstr(&out), stdout);
    buffer_free(&out);
    return rc;
}

static int run_man(struct invocation *in, struct err *e)
{
    int rc = command_man_write(in->tables, in->arguments[0], e);
    return rc == 0 && in->json
               ? invocation_print_json(in, json_pack("{s:s}", "folder", in->arguments[0]), e)
               : rc;
}

const struct command self_verbs[] = {
    {.path = "completion",
     .arguments = "[bash|zsh|fish|words -- WORD...]",
     .max_arguments = COMMAND_MAX_ARGUMENTS,
     .summary = "print what completes this command line in a shell",
     .details = "The shell asks `hpctl completion words` at each Tab: verbs, options and their "
                "words come from the table of commands, names of deployments,\n"
                "agents and keys from the cluster, those of contexts from this box.",
     .examples = "  hpctl completion bash > /etc/bash_completion.d/hpctl\n"
                 "  hpctl completion zsh > ~/.zfunc/_hpctl\n"
                 "  hpctl completion fish > ~/.config/fish/completions/hpctl.fish",
     .run = run_completion,
     .makes_file = true},
    {.path = "man",
     .arguments = "FOLDER",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "write the manual pages of all verbs",
     .details = "`make install` does it; `man hpctl`, `man hpctl-deploy` show them.",
     .examples = "  hpctl man /usr/local/share/man/man1",
     .run = run_man},
    {0},
};
