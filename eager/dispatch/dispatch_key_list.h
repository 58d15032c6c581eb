/*
 * eager/dispatch/dispatch_key_list: PyTorch 2.13's dispatch keys as lists, and their numbers as constants.
 *
 * There are three kinds of keys (c10/core/DispatchKey.h): functionalities, each one bit of a key set; runtime keys of those
 * functionalities that have kernels per backend ("AutogradCPU"), numbered in blocks; alias keys, each of which stands for
 * several keys.
 *
 * Users include <aoticache/dispatch.h>.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_DISPATCH_KEY_LIST_H
#define AOTICACHE_EAGER_DISPATCH_DISPATCH_KEY_LIST_H

/* X(name, backend, a, b): in the order of their bits, 0 the lowest. a and b are forwarded unchanged. */
#define AOTICACHE_DISPATCH_BACKEND_LIST(X, a, b) \
    X(CPU, 0, a, b)                              \
    X(CUDA, 1, a, b)                             \
    X(HIP, 2, a, b)                              \
    X(XLA, 3, a, b)                              \
    X(MPS, 4, a, b)                              \
    X(IPU, 5, a, b)                              \
    X(XPU, 6, a, b)                              \
    X(HPU, 7, a, b)                              \
    X(VE, 8, a, b)                               \
    X(Lazy, 9, a, b)                             \
    X(MTIA, 10, a, b)                            \
    X(MAIA, 11, a, b)                            \
    X(PrivateUse1, 12, a, b)                     \
    X(PrivateUse2, 13, a, b)                     \
    X(PrivateUse3, 14, a, b)                     \
    X(Meta, 15, a, b)

/* X(name, number): the bit is number + backends - 1. Undefined has none. */
#define AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(X) \
    X(Undefined, 0)                              \
    X(Dense, 1)                                  \
    X(FPGA, 2)                                   \
    X(Vulkan, 3)                                 \
    X(Metal, 4)                                  \
    X(Quantized, 5)                              \
    X(CustomRNGKeyId, 6)                         \
    X(MkldnnCPU, 7)                              \
    X(Sparse, 8)                                 \
    X(SparseCsr, 9)                              \
    X(NestedTensor, 10)                          \
    X(BackendSelect, 11)                         \
    X(Fake, 12)                                  \
    X(Python, 13)                                \
    X(FuncTorchDynamicLayerBackMode, 14)         \
    X(Functionalize, 15)                         \
    X(Conjugate, 16)                             \
    X(Negative, 17)                              \
    X(ZeroTensor, 18)                            \
    X(ADInplaceOrView, 19)                       \
    X(AutogradOther, 20)                         \
    X(AutogradFunctionality, 21)                 \
    X(AutogradNestedTensor, 22)                  \
    X(Tracer, 23)                                \
    X(AutocastCPU, 24)                           \
    X(AutocastMTIA, 25)                          \
    X(AutocastMAIA, 26)                          \
    X(AutocastXPU, 27)                           \
    X(AutocastIPU, 28)                           \
    X(AutocastHPU, 29)                           \
    X(AutocastXLA, 30)                           \
    X(AutocastMPS, 31)                           \
    X(AutocastCUDA, 32)                          \
    X(AutocastPrivateUse1, 33)                   \
    X(FuncTorchBatched, 34)                      \
    X(BatchedNestedTensor, 35)                   \
    X(FuncTorchVmapMode, 36)                     \
    X(Batched, 37)                               \
    X(VmapMode, 38)                              \
    X(FuncTorchGradWrapper, 39)                  \
    X(DeferredInit, 40)                          \
    X(PythonTLSSnapshot, 41)                     \
    X(FuncTorchDynamicLayerFrontMode, 42)        \
    X(TESTING_ONLY_GenericWrapper, 43)           \
    X(TESTING_ONLY_GenericMode, 44)              \
    X(PreDispatch, 45)                           \
    X(PythonDispatcher, 46)

/*
 * X(functionality, its number, prefix of the names, number before that of its first runtime key, parsed, a): the
 * functionalities with kernels per backend. parsed: a bit for each backend whose runtime key PyTorch accepts by name
 * ("QuantizedHIP" is printed, but a kernel cannot be registered for it).
 */
#define AOTICACHE_DISPATCH_BLOCK_LIST(X, a)           \
    X(Dense, 1, , 48, 0xffff, a)                      \
    X(Quantized, 5, Quantized, 65, 0x1043, a)         \
    X(Sparse, 8, Sparse, 82, 0x9157, a)               \
    X(SparseCsr, 9, SparseCsr, 99, 0x9157, a)         \
    X(NestedTensor, 10, NestedTensor, 116, 0x90c3, a) \
    X(AutogradFunctionality, 21, Autograd, 133, 0xf2fb, a)

/* X(name, number) */
#define AOTICACHE_DISPATCH_ALIAS_LIST(X)          \
    X(Autograd, 150)                              \
    X(CompositeImplicitAutograd, 151)             \
    X(FuncTorchBatchedDecomposition, 152)         \
    X(CompositeImplicitAutogradNestedTensor, 153) \
    X(CompositeExplicitAutograd, 154)             \
    X(CompositeExplicitAutogradNonFunctional, 155)

/* AOTICACHE_DISPATCH_KEY_CPU, AOTICACHE_DISPATCH_KEY_AutogradCPU, AOTICACHE_DISPATCH_KEY_Autograd, ... */
enum {
#define AOTICACHE_DISPATCH_KEY_ENUM(name, number) AOTICACHE_DISPATCH_KEY_##name = number,
#define AOTICACHE_DISPATCH_KEY_OF_BACKEND_ENUM(name, backend, prefix, first) \
    AOTICACHE_DISPATCH_KEY_##prefix##name = (first) + 1 + (backend),
#define AOTICACHE_DISPATCH_KEY_BLOCK_ENUM(functionality, number, prefix, first, parsed, a) \
    AOTICACHE_DISPATCH_BACKEND_LIST(AOTICACHE_DISPATCH_KEY_OF_BACKEND_ENUM, prefix, first)
    AOTICACHE_DISPATCH_FUNCTIONALITY_LIST(AOTICACHE_DISPATCH_KEY_ENUM)
        AOTICACHE_DISPATCH_BLOCK_LIST(AOTICACHE_DISPATCH_KEY_BLOCK_ENUM, unused)
            AOTICACHE_DISPATCH_ALIAS_LIST(AOTICACHE_DISPATCH_KEY_ENUM)
#undef AOTICACHE_DISPATCH_KEY_ENUM
#undef AOTICACHE_DISPATCH_KEY_OF_BACKEND_ENUM
#undef AOTICACHE_DISPATCH_KEY_BLOCK_ENUM
                AOTICACHE_DISPATCH_KEY_COUNT = 156 /* all numbers are below this; not every number is a key */
};

/*
 * PyTorch's markers between the numbers (c10::DispatchKey::StartOfDenseBackends): the number before the first runtime key of
 * a functionality, which is not a key, and the number of its last one.
 */
enum {
#define AOTICACHE_DISPATCH_KEY_MARKS(functionality, number, prefix, first, parsed, a) \
    AOTICACHE_DISPATCH_KEY_StartOf##functionality##Backends = first,                  \
    AOTICACHE_DISPATCH_KEY_EndOf##functionality##Backends = (first) + 16,
    AOTICACHE_DISPATCH_BLOCK_LIST(AOTICACHE_DISPATCH_KEY_MARKS, unused)
#undef AOTICACHE_DISPATCH_KEY_MARKS
        AOTICACHE_DISPATCH_KEY_EndOfFunctionalityKeys = 47,
    AOTICACHE_DISPATCH_KEY_EndOfRuntimeBackendKeys = 149,
    AOTICACHE_DISPATCH_KEY_StartOfAliasKeys = AOTICACHE_DISPATCH_KEY_Autograd,
    AOTICACHE_DISPATCH_KEY_EndOfAliasKeys = AOTICACHE_DISPATCH_KEY_CompositeExplicitAutogradNonFunctional
};

/* ---- key sets that have names in PyTorch: plain numbers, so that generated bindings have them too ---- */

/* The keys that each alias key stands for. */
#define AOTICACHE_KEY_SET_Autograd 0x380000ffffULL
#define AOTICACHE_KEY_SET_CompositeImplicitAutograd 0x3803ffffffULL
#define AOTICACHE_KEY_SET_FuncTorchBatchedDecomposition 0x2000000000000ULL
#define AOTICACHE_KEY_SET_CompositeImplicitAutogradNestedTensor 0x200200ffffULL
#define AOTICACHE_KEY_SET_CompositeExplicitAutograd 0x1ffffffULL
#define AOTICACHE_KEY_SET_CompositeExplicitAutogradNonFunctional 0x17ffdf7ULL
/* torch._C._dispatch_autogradother_backends */
#define AOTICACHE_KEY_SET_AUTOGRADOTHER_BACKENDS 0x1feffffULL
/* torch._C._after_autograd_keyset, _after_ADInplaceOrView_keyset: a kernel there redispatches with keys & this. */
#define AOTICACHE_KEY_SET_AFTER_AUTOGRAD 0x20000007ffffffffULL
#define AOTICACHE_KEY_SET_AFTER_ADINPLACEORVIEW 0x20000003ffffffffULL
/* torch._C._additional_keys_to_prop_for_wrapper_tensors: the keys that a tensor which wraps another one copies from it. */
#define AOTICACHE_KEY_SET_OF_WRAPPED 0x1818110cbULL

#define AOTICACHE_DISPATCH_BACKENDS 16
#define AOTICACHE_DISPATCH_FUNCTIONALITIES 47
/*
 * Number of entries in an operator's table: one for each functionality, plus the other backends of functionalities that have
 * kernels per backend.
 */
#define AOTICACHE_DISPATCH_ENTRIES 137

#endif
