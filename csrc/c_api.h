/* The flat C interface of the planner: text in, text out.
 *
 * Every function returns 0 on success and -1 on failure; on failure
 * SoybeanLastError() gives the message of this thread's last failure. Texts
 * returned through `out` are JSON, NUL-terminated, owned by the caller, and
 * freed with SoybeanFree(). No exception crosses this interface.
 * The JSON forms are specified in docs/interface.md. */
#ifndef SOYBEAN_C_API_H_
#define SOYBEAN_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOYBEAN_API __attribute__((visibility("default")))

/* The version of this interface and its JSON forms. */
SOYBEAN_API int SoybeanVersion(void);

/* The message of the last failure in this thread; valid until the next call. */
SOYBEAN_API const char* SoybeanLastError(void);

SOYBEAN_API void SoybeanFree(char* text);

/* Searches for a plan. */
SOYBEAN_API int SoybeanPlan(const char* graph, const char* options, char** out);

/* Writes the parallel graph of a plan. */
SOYBEAN_API int SoybeanLower(const char* graph, const char* plan, const char* options, char** out);

/* The space that SoybeanPlan searches with these options, for tests. */
SOYBEAN_API int SoybeanSpace(const char* graph, const char* options, char** out);

/* The rules of all operators of a graph, for tests and for reports. */
SOYBEAN_API int SoybeanRules(const char* graph, char** out);

/* Stamps, which say whether and when operations of MXNet's engine have run. Everyone who knows one holds it: the
 * caller, each queued operation, each guard; it is freed when the last lets go, so that what is queued may outlive
 * the program that queued it. */
SOYBEAN_API void* SoybeanNewStamp(void); /* held by the caller */
SOYBEAN_API void* SoybeanHoldStamp(void* stamp); /* once more; returns it */
SOYBEAN_API void SoybeanReleaseStamp(void* stamp); /* also an EngineFuncParamDeleter */
/* When it was stamped, in nanoseconds of a clock that only goes forward; 0: not yet. */
SOYBEAN_API int64_t SoybeanStampedAt(void* stamp);
/* An operation for the engine (an EngineSyncFunc): stamps. */
SOYBEAN_API void SoybeanStamp(void* run_context, void* stamp);

/* A guard of some stamps, which it holds, for one operation. */
SOYBEAN_API void* SoybeanNewGuard(void* const* stamps, int64_t count);
SOYBEAN_API void SoybeanReleaseGuard(void* guard);
/* Another operation: throws a std::exception where one of them is not stamped, which the engine takes as the error of
 * the operation: what it writes is not computed. */
SOYBEAN_API void SoybeanRequireStamps(void* run_context, void* guard);

/* The stages of a pipeline for a profile of layers. */
SOYBEAN_API int SoybeanStages(const char* profile, const char* options, char** out);

#ifdef __cplusplus
}
#endif

#endif /* SOYBEAN_C_API_H_ */
