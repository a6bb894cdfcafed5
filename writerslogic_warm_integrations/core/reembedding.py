from warm_integrations.core.reembedding import *
