// Package tokenizer turns text into token ids and back, as the tokenizer of a served model does: byte-level BPE,
// SentencePiece's BPE, Unigram and WordPiece, described by a tokenizer.json ([FromJSON]) or by a GGUF file's vocabulary
// ([FromVocab]).
//
// A text walks through: added tokens (cut out whole), normalizer, pre-tokenizer, model, post-processor. A [Tokenizer] is
// immutable and safe for concurrent use; a [Stream] decodes one sequence as it grows.
//
// Both the description and the text are untrusted. What a description asks for and is not supported is an error when it is
// loaded, never a silent difference. Encoding takes O(n log n) for any text.
package tokenizer
