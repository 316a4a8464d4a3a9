/* Words of objectives, methods and partitions, as options and plans spell them. */
#include "planners/pipeline/pipeline.h"

const char *const pipeline_objective_names[] = {"latency", "throughput", "energy", NULL};

const char *const pipeline_method_names[] = {"exact",    "hpipe", "even", "gpipe",
                                             "terapipe", "tp",    NULL};

const char *const pipeline_partition_names[] = {"even", "balanced", NULL};
