/*
 * eager/package/requirements: what the machine code of a model needs of the CPU, from what its metadata says.
 *
 * The metadata names the vector extensions that PyTorch's compiler chose ("AVX512 AVX512_VNNI"), not every feature that
 * the C++ compiler used, so each word stands for the level of x86-64 that all processors with that extension have.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "eager/package/source.h"

/* The words of torch/_inductor/cpu_vec_isa.py, as it prints them, in capitals. */
static const struct {
    const char *word, *features;
} words[] = {
    {"AVX2", "x86-64-v3"},
    {"AVX512", "x86-64-v4"},
    {"AVX512_VNNI", "x86-64-v4,avx512_vnni"},
    {"AVX512_BF16", "x86-64-v4,avx512_bf16"},
    {"AMX_TILE", "x86-64-v4,avx512_vnni,amx_tile,amx_int8,amx_bf16"},
    {"AMX_FP16", "x86-64-v4,avx512_vnni,amx_tile,amx_int8,amx_bf16,amx_fp16"},
    /* Every 64-bit ARM has these; wider vectors are announced by the same word (SVE) and cannot be told apart. */
    {"ASIMD", ""},
    {"NEON", ""},
    {"INVALID_VEC_ISA", ""}, /* plain code */
    {"FALSE", ""},
    {"NONE", ""},
};

static const char *features_of(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == length && strncasecmp(words[i].word, word, length) == 0)
            return words[i].features;
    return NULL;
}

/* A word that is not in the table may still be a feature by its own name. */
static aoticache_status add_word(const char *word, size_t length, aoticache_cpu_features *features,
                                 aoticache_error *ret_error)
{
    char lower[64] = "";
    aoticache_cpu_features added;
    const char *text = features_of(word, length);
    if (text == NULL) {
        for (size_t i = 0; i < length && i + 1 < sizeof lower; i++)
            lower[i] = (char)tolower((unsigned char)word[i]);
        text = lower;
    }
    if (length >= sizeof lower || aoticache_cpu_features_parse(text, &added, NULL) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the package says that its code needs %.*s of the CPU, which is not known here: say "
                                   "what it requires when it is added",
                                   length < 64 ? (int)length : 64, word);
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS; i++)
        features->words[i] |= added.words[i];
    return AOTICACHE_OK;
}

bool aoticache_package_is_for_this_machine(const aoticache_package_model *model)
{
    return model->machine[0] == '\0' || strcmp(model->machine, aoticache_cpu_arch()) == 0;
}

aoticache_status aoticache_package_requirements(const aoticache_package_model *model,
                                                aoticache_cpu_features *ret_requirements, aoticache_error *ret_error)
{
    aoticache_cpu_features features = {{0}};
    const char *at = model->cpu_isa;
    if (!aoticache_package_is_for_this_machine(model))
        at = ""; /* a name means this machine's feature; who runs the code is of that architecture, by the key */
    for (at += strspn(at, " "); *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        aoticache_status status = add_word(at, length, &features, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        at += length;
    }
    *ret_requirements = features;
    return AOTICACHE_OK;
}
