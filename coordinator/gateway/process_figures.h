/* What this process takes of the machine, under the names that Prometheus' own clients have for it.
 * Reads /proc: some microseconds. */
#ifndef HP_COORDINATOR_GATEWAY_PROCESS_FIGURES_H
#define HP_COORDINATOR_GATEWAY_PROCESS_FIGURES_H

struct process_figures {
    double cpu_s;   /* of all threads so far */
    double start_s; /* Unix time */
    double resident_bytes, virtual_bytes;
    double descriptors, descriptors_limit;
};

/* What cannot be found out is 0. */
void process_figures_read(struct process_figures *out);

#endif
