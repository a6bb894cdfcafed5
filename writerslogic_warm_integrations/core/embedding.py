from warm_integrations.core.embedding import *
