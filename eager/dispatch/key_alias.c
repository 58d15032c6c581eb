/*
 * eager/dispatch/key_alias: sets that PyTorch derives from a key: the keys that an alias stands for, the backends of an
 * autograd key and the reverse, the keys of a tensor.
 */
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/keys.h"

#define BIT(name) KEY_SET_BIT_OF(name)
#define BACKEND(name) (UINT64_C(1) << (AOTICACHE_DISPATCH_KEY_##name - AOTICACHE_DISPATCH_KEY_CPU))

/* Backends that have no autograd key of their own: AutogradOther serves them. */
#define OTHER_BACKENDS                                                                                    \
    (KEY_SET_BACKEND_BITS | BIT(FPGA) | BIT(Vulkan) | BIT(Metal) | BIT(Quantized) | BIT(CustomRNGKeyId) | \
     BIT(MkldnnCPU) | BIT(Sparse) | BIT(SparseCsr))
#define BACKENDS (OTHER_BACKENDS | BIT(Dense))
#define AUTOGRAD (KEY_SET_BACKEND_BITS | BIT(AutogradOther) | BIT(AutogradFunctionality) | BIT(AutogradNestedTensor))
#define NESTED (KEY_SET_BACKEND_BITS | BIT(NestedTensor))
/* For kernels that use views or write in place: not for Sparse, XLA and Lazy, which need operators without these. */
#define NON_FUNCTIONAL (BACKENDS & ~(BIT(Sparse) | BACKEND(XLA) | BACKEND(Lazy)))

aoticache_key_set aoticache_key_set_of_alias(aoticache_dispatch_key key)
{
    switch (key) {
    case AOTICACHE_DISPATCH_KEY_Autograd:
        return AUTOGRAD;
    case AOTICACHE_DISPATCH_KEY_CompositeImplicitAutograd:
        return BACKENDS | NESTED | AUTOGRAD;
    case AOTICACHE_DISPATCH_KEY_FuncTorchBatchedDecomposition:
        return BIT(FuncTorchBatched);
    case AOTICACHE_DISPATCH_KEY_CompositeImplicitAutogradNestedTensor:
        return NESTED | BIT(AutogradNestedTensor);
    case AOTICACHE_DISPATCH_KEY_CompositeExplicitAutograd:
        return BACKENDS;
    case AOTICACHE_DISPATCH_KEY_CompositeExplicitAutogradNonFunctional:
        return NON_FUNCTIONAL;
    default:
        return aoticache_key_set_of(key);
    }
}

bool aoticache_dispatch_key_in_alias(aoticache_dispatch_key key, aoticache_dispatch_key alias)
{
    if (key == AOTICACHE_DISPATCH_KEY_Undefined)
        return false;
    if (!aoticache_dispatch_key_is_alias(alias))
        return key == alias;
    return aoticache_key_set_has(aoticache_key_set_of_alias(alias), key);
}

bool aoticache_dispatch_key_is_backend(aoticache_dispatch_key key)
{
    aoticache_key_set set = aoticache_key_set_of(key); /* empty for alias keys */
    return set != 0 && (set & ~BACKENDS) == 0;
}

static bool has_autograd(int32_t backend)
{
    const aoticache_key_set none = BACKEND(HIP) | BACKEND(VE);
    return backend >= 0 && (UINT64_C(1) << backend & none) == 0;
}

aoticache_dispatch_key aoticache_dispatch_key_autograd_of(aoticache_dispatch_key key)
{
    int32_t backend = aoticache_dispatch_key_backend(key);
    if (!has_autograd(backend))
        return AOTICACHE_DISPATCH_KEY_AutogradOther;
    return aoticache_dispatch_key_of(AOTICACHE_DISPATCH_KEY_AutogradFunctionality, backend);
}

aoticache_key_set aoticache_key_set_backends_of_autograd(aoticache_dispatch_key key)
{
    if (key == AOTICACHE_DISPATCH_KEY_AutogradOther)
        return OTHER_BACKENDS;
    if (key == AOTICACHE_DISPATCH_KEY_AutogradNestedTensor)
        return NESTED;
    int32_t backend = aoticache_dispatch_key_backend(key);
    /* PyTorch has AutogradMTIA, but leaves it out here. */
    if (aoticache_dispatch_key_functionality(key) != AOTICACHE_DISPATCH_KEY_AutogradFunctionality ||
        !has_autograd(backend) || key == AOTICACHE_DISPATCH_KEY_AutogradMTIA)
        return 0;
    return aoticache_key_set_of(aoticache_dispatch_key_of(AOTICACHE_DISPATCH_KEY_Dense, backend));
}

aoticache_key_set aoticache_key_set_autogradother_backends(void)
{
    return OTHER_BACKENDS;
}

static aoticache_key_set autocast_of(int32_t backend)
{
    switch (backend + AOTICACHE_DISPATCH_KEY_CPU) {
#define AUTOCAST(name)                  \
    case AOTICACHE_DISPATCH_KEY_##name: \
        return BIT(Autocast##name);
        AUTOCAST(CPU)
        AUTOCAST(MTIA)
        AUTOCAST(MAIA)
        AUTOCAST(XPU)
        AUTOCAST(IPU)
        AUTOCAST(HPU)
        AUTOCAST(XLA)
        AUTOCAST(MPS)
        AUTOCAST(CUDA)
        AUTOCAST(PrivateUse1)
#undef AUTOCAST
    default:
        return 0;
    }
}

aoticache_key_set aoticache_key_set_of_tensor(aoticache_dispatch_key key, bool inference)
{
    int32_t backend = aoticache_dispatch_key_backend(key);
    aoticache_key_set set = aoticache_key_set_of(key) | (backend < 0 ? 0 : autocast_of(backend));
    if (inference)
        return set;
    if ((set & BIT(NestedTensor)) != 0)
        set |= BIT(AutogradNestedTensor);
    return set | BIT(ADInplaceOrView) | aoticache_key_set_of(aoticache_dispatch_key_autograd_of(key));
}
