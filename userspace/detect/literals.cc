#include "userspace/detect/literals.h"

#include <hs/hs.h>

#include <limits>

#include "absl/strings/str_cat.h"

namespace stockade::detect {
namespace {

int OnMatch(unsigned int id, unsigned long long, unsigned long long, unsigned int, void* context) {
    static_cast<std::vector<int>*>(context)->push_back(static_cast<int>(id));
    return 0;
}

}  // namespace

struct LiteralScanner::Database {
    hs_database_t* compiled = nullptr;
    hs_scratch_t* scratch = nullptr;
    ~Database() {
        // Both take null; what they return is about arguments that are no database.
        (void)hs_free_scratch(scratch);
        (void)hs_free_database(compiled);
    }
};

StatusOr<std::unique_ptr<LiteralScanner>> LiteralScanner::Create(const std::vector<std::string>& texts) {
    if (hs_valid_platform() != HS_SUCCESS)
        return absl::UnimplementedError("this processor lacks what Vectorscan needs");
    std::vector<const char*> pointers;
    std::vector<unsigned> flags, ids;
    std::vector<size_t> sizes;
    for (const std::string& text : texts) {
        ids.push_back(static_cast<unsigned>(pointers.size()));
        pointers.push_back(text.data());
        sizes.push_back(text.size());
        flags.push_back(HS_FLAG_SINGLEMATCH);
    }
    std::unique_ptr<LiteralScanner> scanner(new LiteralScanner);
    scanner->database_ = std::make_unique<Database>();
    hs_compile_error_t* error = nullptr;
    const hs_error_t compiled = hs_compile_lit_multi(pointers.data(), flags.data(), ids.data(), sizes.data(),
                                                     static_cast<unsigned>(texts.size()), HS_MODE_BLOCK,
                                                     nullptr, &scanner->database_->compiled, &error);
    if (compiled != HS_SUCCESS) {
        const Status status = absl::InternalError(absl::StrCat(
            "compile ", texts.size(), " literals: ", error == nullptr ? "no memory" : error->message));
        (void)hs_free_compile_error(error);  // takes null
        return status;
    }
    if (hs_alloc_scratch(scanner->database_->compiled, &scanner->database_->scratch) != HS_SUCCESS)
        return absl::ResourceExhaustedError("no memory to scan for literals");
    return scanner;
}

LiteralScanner::~LiteralScanner() = default;

bool LiteralScanner::Scan(absl::string_view buffer, std::vector<int>* found) {
    if (buffer.size() > std::numeric_limits<unsigned>::max()) return false;
    return hs_scan(database_->compiled, buffer.data(), static_cast<unsigned>(buffer.size()), 0,
                   database_->scratch, OnMatch, found) == HS_SUCCESS;
}

size_t LiteralScanner::bytes() const {
    size_t size = 0;
    return hs_database_size(database_->compiled, &size) == HS_SUCCESS ? size : 0;
}

}  // namespace stockade::detect
