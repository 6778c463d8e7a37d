"""`bench specinfer`: SpecInfer's tables 1 to 3 (arXiv 2305.09781) of any pair on disk, as the paper has them.

The classes of the prompt set are the datasets. Table 1 is how often one of a node's k children is accepted,
computed from the two models' distributions along what the target writes. Tables 2 and 3 are counted: tokens
that a step of the engine yields with the paper's tree <1,1,w,1,1,1,1,1>, its children drawn independently
where the decoding is stochastic. Steps that the end of the output would cut short are left out.
"""
