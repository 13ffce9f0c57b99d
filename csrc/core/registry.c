/* The only file that names all operations, topologies and deciders. */
#include "interfaces.h"

#define IMPL(NAME, name, ...) [HF_OP_##NAME] = &hf_##name##_impl,
const hf_op_impl *const hf_op_impls[] = {HF_OP_LIST(IMPL)};

#define ROW(NAME, name, verb, number, returns)                                                     \
    [HF_OP_##NAME] = {#name, HF_VERB_##verb, HF_NUMBER_##number, HF_RETURNS_##returns},
const hf_op_row hf_op_rows[] = {HF_OP_LIST(ROW)};

const hf_topology *const hf_topologies[HF_MODES] = {
    [HF_MODE_ONE] = &hf_single_topology,    [HF_MODE_SENTINEL] = &hf_sentinel_topology,
    [HF_MODE_QUORUM] = &hf_single_topology, /* for each member; the quorum itself has no keys */
    [HF_MODE_SHARDS] = &hf_shards_topology, [HF_MODE_CLUSTER] = &hf_cluster_topology,
};

const hf_decider *const hf_deciders[HF_MODES] = {
    [HF_MODE_ONE] = &hf_single_decider,      [HF_MODE_SENTINEL] = &hf_single_decider,
    [HF_MODE_QUORUM] = &hf_majority_decider, [HF_MODE_SHARDS] = &hf_single_decider,
    [HF_MODE_CLUSTER] = &hf_single_decider,
};
