#include "hpctl/plan_experts.h"

#include "common/experts.h"
#include "common/profile_parts.h"

static int parts_make(const struct profile *p, unsigned groups, struct profile *out, struct err *e)
{
    struct arena arena = {0};
    struct profile_part *parts;
    int n = profile_parts_list(p, (int)groups, &arena, &parts);
    int rc = n < 0 ? err_set(e, HP_ENOMEM, "no memory for a profile")
                   : profile_divide(p, parts, n, out, e);
    arena_free(&arena);
    return rc;
}

int plan_experts_divide(struct profile *p, unsigned groups, struct err *e)
{
    struct profile parts;
    unsigned experts = (unsigned)profile_experts(p);
    if (groups <= 1)
        return 0;
    if (experts == 0)
        return err_set(e, HP_EINVAL,
                       "experts in %u groups: the profile says nothing of experts (\"experts\" of "
                       "its layers, as `hpctl profile model` writes it)",
                       groups);
    if (groups > experts)
        return err_set(e, HP_EINVAL, "experts in %u groups: the model's blocks have %u experts",
                       groups, experts);
    int rc = parts_make(p, groups, &parts, e);
    if (rc < 0)
        return rc;
    profile_free(p);
    *p = parts;
    return 0;
}

int plan_experts_make(const struct pipeline_request *rq, struct profile *p, struct arena *arena,
                      struct pipeline_answer *out, unsigned *groups, struct err *e)
{
    struct err ignored;
    unsigned n = 1, experts = (unsigned)profile_experts(p);
    int rc = pipeline_plan_make(rq, arena, out, e);
    *groups = 0;
    while (rc == HP_EINFEASIBLE && (n = expert_groups_more(n, experts)) > 1) {
        struct profile parts;
        struct pipeline_request divided = *rq;
        divided.profile = &parts;
        if (parts_make(p, n, &parts, &ignored) < 0)
            return rc;
        if (pipeline_plan_make(&divided, arena, out, &ignored) == 0) {
            profile_free(p);
            *p = parts;
            *groups = n;
            return 0;
        }
        profile_free(&parts);
    }
    return rc;
}
