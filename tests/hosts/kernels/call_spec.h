/* Call specifications as PyTorch writes them, for kernel libraries that stand in for its own. */
#ifndef AOTICACHE_TESTS_CALL_SPEC_H
#define AOTICACHE_TESTS_CALL_SPEC_H

#define CALL_SPEC_TENSOR "{\"type\": null, \"context\": null, \"children_spec\": []}"
#define CALL_SPEC_TUPLE(children) \
    "{\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [" children "]}"

#define CALL_SPEC_ONE_INPUT                 \
    "[1, " CALL_SPEC_TUPLE(CALL_SPEC_TUPLE( \
        CALL_SPEC_TENSOR) ", {\"type\": \"builtins.dict\", \"context\": \"[]\", \"children_spec\": []}") "]"
#define CALL_SPEC_ONE_OUTPUT "[1, " CALL_SPEC_TENSOR "]"
#define CALL_SPEC_TWO_OUTPUTS "[1, " CALL_SPEC_TUPLE(CALL_SPEC_TENSOR ", " CALL_SPEC_TENSOR) "]"

#endif
