# stockade_pch(<target> <set>)     <target> starts from the precompiled headers of a set: base, events or commands
#
# Most of a cold compile was the same headers again and again. Only headers of others and generated ones belong here: one of ours
# would rebuild all of its set with each change. What a source uses it includes all the same: only the dev build has this, the others
# tell. Nor has a build of some rooms, where the generated headers may lack.
set(STOCKADE_PCH OFF)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT STOCKADE_SANITIZE AND NOT STOCKADE_ROOMS)
    set(STOCKADE_PCH ON)
endif()

function(stockade_pch_set name)
    if(NOT STOCKADE_PCH)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;DEPS")
    set(source ${CMAKE_BINARY_DIR}/gen/pch_${name}.cc)
    file(GENERATE OUTPUT ${source} CONTENT "")
    add_library(stockade_pch_${name} OBJECT ${source})
    target_link_libraries(stockade_pch_${name} PRIVATE ${arg_DEPS} stockade_flags)
    target_precompile_headers(stockade_pch_${name} PRIVATE ${arg_HEADERS})
endfunction()

function(stockade_pch target name)
    if(STOCKADE_PCH)
        target_precompile_headers(${target} REUSE_FROM stockade_pch_${name})
    endif()
endfunction()

set(base_headers
    <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <map> <memory>
    <mutex> <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>
    <absl/algorithm/container.h> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h> <absl/functional/function_ref.h>
    <absl/status/statusor.h> <absl/strings/escaping.h> <absl/strings/match.h> <absl/strings/numbers.h> <absl/strings/str_cat.h>
    <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_replace.h> <absl/strings/str_split.h> <absl/strings/strip.h>
    <absl/time/time.h> <absl/types/span.h>)
set(base_deps absl::flat_hash_map absl::status absl::statusor absl::strings absl::str_format absl::time)
stockade_pch_set(base HEADERS ${base_headers} <google/protobuf/message.h> DEPS ${base_deps} protobuf::libprotobuf)
stockade_pch_set(events HEADERS ${base_headers} <userspace/model/event.pb.h> DEPS ${base_deps} stockade_event_proto)
stockade_pch_set(commands HEADERS ${base_headers} <userspace/api/agent.pb.h> DEPS ${base_deps} stockade_agent_proto)
