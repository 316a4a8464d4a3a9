/* `hpctl profile split`: a fine profile becomes one of a few blocks. */
#include <stdio.h>

#include "common/profile.h"
#include "hpctl/verbs.h"
#include "planners/pools/split.h"

static const struct command_option split_options[] = {
    {"blocks", "N", "how many (default 10)", 0},
    {"window", "X",
     "blocks take between 1 - X and 1 + X of the mean time (default 0.5; widened where nothing "
     "fits)",
     0},
    {"kind", "K", "balance by the times of this kind of device (default: the fastest)", 0},
    {0},
};

static void print_split(const struct profile *p, const struct split *s)
{
    printf("%d layers in %d blocks, balanced on %s: %.3g to %.3g ms each (window %.3g)\n",
           p->n_layers, s->n_blocks, p->kinds[s->kind], s->least_s * 1e3, s->most_s * 1e3,
           s->window);
    printf("cuts move %.4g MB a sample in all; the published greedy grouping moves %.4g MB\n\n",
           s->cut_bytes / 1e6, s->greedy_cut_bytes / 1e6);
    printf("  %-8s %-12s %s\n", "block", "layers", "output MB a sample");
    for (int b = 0; b < s->n_blocks; b++)
        printf("  %-8d %4d-%-7d %.4g\n", b, b ? s->end[b - 1] : 0, s->end[b] - 1,
               p->layers[s->end[b] - 1].output_bytes / 1e6);
}

static int profile_split_run(struct invocation *in, struct err *e)
{
    struct profile p = {0};
    struct split s;
    uint64_t blocks;
    double window;
    int rc;
    if ((rc = invocation_range(in, "blocks", 10, 1, SPLIT_MAX_BLOCKS, &blocks, e)) < 0 ||
        (rc = invocation_number(in, "window", SPLIT_WINDOW, &window, e)) < 0)
        return rc;
    if (window < 0)
        return err_set(e, HP_EUSAGE, "--window: %g is below 0", window);
    if ((rc = profile_load(in->arguments[0], &p, e)) < 0)
        return rc;
    if ((rc = pools_split(&p, (int)blocks, window, invocation_option(in, "kind"), &s, e)) < 0) {
        err_at(e, "%s", in->arguments[0]);
    } else {
        if (!in->json)
            print_split(&p, &s);
        if (in->json || in->output)
            rc = invocation_print_json(in, pools_split_profile(&p, &s), e);
    }
    profile_free(&p);
    return rc;
}

const struct command profile_verbs[] = {
    {
        .path = "profile split",
        .arguments = "PROFILE.json",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "group the layers of a profile into blocks for planning pools",
        .details = "Chooses the cuts that move the fewest bytes among those whose blocks take "
                   "about equally long, by a dynamic "
                   "programme.",
        .examples =
            "  hpctl profile split resnet.layers.json -o resnet.json\n"
            "  hpctl profile split resnet.layers.json --blocks 12 --window 0.3 --kind L4 -o json",
        .options = split_options,
        .run = profile_split_run,
        .makes_file = true,
    },
    {0},
};
