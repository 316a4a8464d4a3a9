/* `hpctl serve`: a model file on this box, for everybody on this box. */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "common/names.h"
#include "hpctl/deploying.h"
#include "hpctl/talk.h"
#include "hpctl/verbs.h"

static int serve_say(const struct invocation *in, const struct own_cluster *own,
                     const struct context *where, struct err *e)
{
    if (in->json)
        return invocation_print_json(in,
                                     json_pack("{s:s, s:s, s:s+}", "name", own_cluster_name(own),
                                               "http", where->http, "api", where->http, "/v1"),
                                     e);
    printf("%s serves at %s/v1, and in a browser at %s/; Ctrl-C ends it\n  curl "
           "%s/v1/chat/completions -H 'Content-Type: "
           "application/json' -d '{\"model\": \"%s\", \"messages\": [{\"role\": \"user\", "
           "\"content\": \"Hello\"}]}'\n",
           own_cluster_name(own), where->http, where->http, where->http, own_cluster_name(own));
    return 0;
}

/* Whoever serves need not be who asks, and be the first to see that nothing is answered. */
static void serving_tell(const struct own_cluster *own, bool *broken)
{
    struct err why = {0};
    bool serves = own_cluster_serves(own, &why);
    if (!serves && !*broken)
        fprintf(stderr,
                "hpctl: %s does not serve now: %s\n  where its file was changed, end this and "
                "begin anew\n",
                own_cluster_name(own), why.text);
    if (serves && *broken)
        fprintf(stderr, "hpctl: %s serves again\n", own_cluster_name(own));
    *broken = !serves;
}

/* Until Ctrl-C, SIGTERM or the terminal's end, or until the cluster ends by itself. What is under
 * way then may go on for a while, unless one of these comes again. */
static int run_serve(struct invocation *in, struct err *e)
{
    struct own_options o = {
        .path = in->arguments[0], .name = invocation_option(in, "name"), .quiet = in->json};
    struct own_cluster *own = NULL;
    const struct timespec look = {.tv_nsec = 500000000};
    sigset_t ends;
    int rc = invocation_u64(in, "port", 8080, &o.port, e);
    if (rc == 0 && o.port > 65535)
        rc =
            err_set(e, HP_EUSAGE, "--port %llu is no port: 0 to 65535", (unsigned long long)o.port);
    if (rc == 0 && o.name && !name_is_valid(o.name, DEPLOYMENT_NAME_BYTES - 1))
        rc = err_set(e, HP_EUSAGE, "--name: \"%.80s\" cannot name a deployment", o.name);
    if (rc == 0)
        rc = talk_options_read(in, &o, e);
    if (rc == 0)
        rc = own_cluster_open(&o, &own, e);
    json_decref(o.options);
    if (rc < 0)
        return rc;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    rc = serve_say(in, own, own_cluster_context(own), e);
    fflush(stdout);
    bool broken = false;
    while (rc == 0 && sigtimedwait(&ends, NULL, &look) < 0)
        if ((rc = own_cluster_check(own, e)) == 0)
            serving_tell(own, &broken);
    sigprocmask(SIG_UNBLOCK, &ends, NULL);
    own_cluster_close(&own);
    return rc;
}

static const struct command_option serve_options[] = {
    {"port", "P", "of the API on 127.0.0.1 (default 8080; 0: any free one)", 0},
    {"name", "NAME", "what the model is called (default: the file's name)", 0},
    OWN_OPTIONS,
    {0},
};

const struct command serve_verbs[] = {
    {"serve", "FILE", 1, 1, "serve a model file on this box alone, until Ctrl-C",
     "A cluster of one agent with all cores, which begins and ends with this verb and leaves "
     "nothing behind: OpenAI's, Ollama's and\n"
     "Anthropic's clients reach it at 127.0.0.1. For several boxes, keys and addresses beyond "
     "loopback: hp-coordinator, hp-agent, `hpctl deploy`.",
     "  hpctl serve model.gguf\n  hpctl serve ./llama-3.2-1b --port 9000 --kv q8_0 --max-context "
     "8192\n  hpctl serve model.gguf --device cuda:0,mem=8GiB --device cpu",
     serve_options, run_serve, false},
    {0},
};
