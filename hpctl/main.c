/* hpctl: the command line. Its verbs are the rows of these tables. */
#include "hpctl/command.h"
#include "hpctl/verbs.h"

int main(int argc, char **argv)
{
    static const struct command *const tables[] = {
        local_verbs,
        deploy_verbs,
        chat_verbs,
        context_verbs,
        cluster_verbs,
        topo_verbs,
        doctor_verbs,
        bench_verbs,
        plan_verbs,
        plan_pipeline_verbs,
        plan_pools_verbs,
        simulate_verbs,
        profile_verbs,
        profile_model_verbs,
        profile_graph_verbs,
        plan_coldstart_verbs,
        model_run_verbs,
        model_verbs,
        NULL,
    };
    return command_main(argc, argv, tables);
}
